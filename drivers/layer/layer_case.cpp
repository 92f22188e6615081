// SPDX-License-Identifier: MIT
#include "layer/layer_case.hpp"

#include <fmt/format.h>

#include <cmath>

#include "measure/memory_available.hpp"
#include "sweep/judge.hpp"

namespace kformer::drivers {

double layer_flops(const LlamaConfig& config, LayerShape shape, bool backward) {
  const double rows = static_cast<double>(shape.rows()), seq = static_cast<double>(shape.seq_len);
  const double matrices = static_cast<double>(
      (config.qkv_size() + config.attention_size() + 3 * config.intermediate_size) * config.hidden_size);
  const double hidden_by_window =
      config.sliding_window > 0 ? std::max(0.0, seq - static_cast<double>(config.sliding_window)) : 0;
  const double pairs = 0.5 * (seq * seq - hidden_by_window * hidden_by_window);
  const double linear = 2 * rows * matrices;
  const double attention = 4 * static_cast<double>(shape.batch * config.attention_size()) * pairs;
  return backward ? 2 * linear + 2.5 * attention : linear + attention;
}

double layer_bytes(const LlamaConfig& config, LayerShape shape, DType dtype, bool backward) {
  const double size = static_cast<double>(size_of(dtype)),
               accumulated = static_cast<double>(size_of(compute_dtype(dtype)));
  const double weights = static_cast<double>(config.parameter_count()),
               rows = static_cast<double>(shape.rows());
  const double hidden = static_cast<double>(config.hidden_size);
  if (!backward) return size * (weights + 2 * rows * hidden);
  const double saved = rows * static_cast<double>(config.qkv_size() + config.attention_size() +
                                                  config.hidden_size + 2 * config.intermediate_size);
  return size * (weights + 3 * rows * hidden + saved) + 2 * accumulated * weights;
}

double step_bytes(const LayerTask& task, DType dtype) {
  const double size = static_cast<double>(size_of(dtype)),
               computed = static_cast<double>(size_of(compute_dtype(dtype)));
  const bool master = size < computed && task.precision.master == MasterWeights::f32;
  const double weight = master ? size + 2 * computed : 2 * size;
  const double states = task.optimizer.states == OptimizerStates::eight_bit
                            ? 4 * (1 + 4.0 / static_cast<double>(adamw_block))
                            : 4 * computed;
  return static_cast<double>(task.config.parameter_count()) * (3 * computed + weight + states);
}

LayerSweep::LayerSweep(const LayerSweepDeck& deck, const LlamaConfig& config, const LayerTensors* tensors)
    : m_deck(deck), m_config(config), m_tensors(tensors) {}

LayerTask LayerSweep::task(const LayerCase& point) const {
  return {m_config,
          {point.batch, point.seq_len},
          point.impl,
          point.direction,
          m_deck.precision,
          m_deck.optimizer,
          static_cast<std::uint64_t>(m_deck.run.seed),
          m_tensors ? &m_tensors->arrays : nullptr};
}

CaseResult LayerSweep::run(const LayerCase& point, const std::function<bool()>& stop) {
  CaseResult result;
  result.point = point;
  m_last.clear();
  const DType dtype = point.dtype;
  const auto add_pass = [&](bool backward) {
    result.flops += layer_flops(m_config, {point.batch, point.seq_len}, backward);
    result.bytes_min += layer_bytes(m_config, {point.batch, point.seq_len}, dtype, backward);
  };
  if (point.direction != Direction::backward) add_pass(false);
  if (point.direction != Direction::forward) add_pass(true);
  if (point.direction == Direction::step) result.bytes_min += step_bytes(task(point), dtype);
  try {
    measure(point, result, stop);
  } catch (const OutOfMemory& error) {
    if (m_deck.run.on_oom == OnOutOfMemory::abort) throw;
    result.status = CaseStatus::out_of_memory;
    result.message = error.what();
  } catch (const NotSupported& error) {
    result.status = CaseStatus::unsupported;
    result.message = error.what();
  } catch (const std::exception& error) {
    result.status = CaseStatus::error;
    result.message = error.what();
  }
  return result;
}

void LayerSweep::measure(const LayerCase& point, CaseResult& result, const std::function<bool()>& stop) {
  const DType dtype = point.dtype;
  const LayerTask what = task(point);
  const auto make = [&](const LayerTask& task) {
    return [&, task](const std::shared_ptr<Ledger>& ledger) {
      return make_layer_run(point.execution_space, dtype, task, ledger);
    };
  };
  result.predicted = predicted_bytes(make(what));
  if (const auto available = memory_available(point.execution_space);
      available && result.predicted > *available) {
    const auto fits = largest_seq_len(what.shape.seq_len, [&](std::int64_t seq_len) {
      LayerTask smaller = what;
      smaller.shape.seq_len = seq_len;
      return predicted_bytes(make(smaller)) <= *available;
    });
    throw OutOfMemory(fmt::format(
        "kformer-layer: the case needs {}, but only {} is available; with batch {} the longest sequence that "
        "fits is {}",
        format_bytes(result.predicted), format_bytes(*available), point.batch, fits));
  }

  const bool checked =
      m_deck.check.reference == CheckReference::f64 && point.seq_len <= m_deck.check.max_seq_len;
  const bool wanted = checked || (m_deck.tensors && !m_deck.tensors->output.empty());
  HostArrays results =
      drivers::measure(make(what), {point.direction, wanted, &m_deck.timing, &m_deck.profile, stop}, result);
  result.status = checked ? CaseStatus::ok : CaseStatus::unchecked;
  if (checked) check(point, results, result, stop);
  check_steps(point, result);
  m_last = std::move(results);
}

const HostArrays& LayerSweep::oracle(const LayerCase& point) {
  const bool backward = point.direction != Direction::forward;
  const std::string key = fmt::format("{} {} {}", point.execution_space, point.batch, point.seq_len);
  // Results of backward hold those of forward too.
  if (m_oracle.key == key && (!backward || m_oracle.results.size() > 1)) return m_oracle.results;
  m_oracle = {};
  LayerTask exact = task(point);
  exact.algorithm = AttentionAlgorithm::standard;
  const bool gradients = !m_tensors || m_tensors->arrays.contains("grad_output");
  exact.direction = gradients ? Direction::backward : Direction::forward;
  exact.precision = {};
  const auto run = make_layer_run(point.execution_space, DType::f64, exact, Ledger::create());
  run->prepare({});
  run->forward();
  if (gradients) run->backward();
  m_oracle = {key, run->results(gradients)};
  return m_oracle.results;
}

void LayerSweep::check(const LayerCase& point, const HostArrays& results, CaseResult& result,
                       const std::function<bool()>& stop) {
  const bool backward = point.direction != Direction::forward;
  const DType dtype = point.dtype;
  // The naive computation in the same precision: standard attention through the portable kernels, every array
  // stored.
  LayerTask textbook = task(point);
  textbook.algorithm = AttentionAlgorithm::standard;
  if (backward) textbook.direction = Direction::backward;
  const auto naive_run = [&] {
    const ForcedKernels portable(
        "linear:kokkos,standard_attention:kokkos,rms_norm:kokkos,rope:kokkos,swiglu:kokkos");
    auto run = make_layer_run(point.execution_space, naive_stand_in(dtype).dtype, textbook, Ledger::create());
    run->prepare(stop);
    run->forward();
    if (backward) run->backward();
    run->fence();
    return run;
  }();
  const HostArrays& exact = oracle(point);
  record_errors(results, exact, result);
  if (!m_deck.check.fail) return;
  result.message = judge(results, exact, naive_run->results(backward), dtype, [&](const std::string& name) {
    return name.ends_with("weight") || name.ends_with("bias") ? compute_dtype(dtype) : dtype;
  });
  if (result.message.empty()) return;
  result.status = CaseStatus::failed_check;
  if (result.loss_scale != 1 && !std::isfinite(result.max_abs_err))
    result.message +=
        fmt::format("; the loss scale {} is too large for {}", result.loss_scale, name_of(point.dtype));
}

void LayerSweep::check_steps(const LayerCase& point, CaseResult& result) const {
  if (point.direction != Direction::step || result.counted_steps > 0) return;
  if (m_deck.check.fail) result.status = CaseStatus::failed_check;
  result.message =
      fmt::format("all {} steps were skipped, because gradients were not finite; the loss scale was {}",
                  result.skipped_steps, result.loss_scale);
}

}  // namespace kformer::drivers
