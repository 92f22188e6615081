// SPDX-License-Identifier: MIT
#include "layer/layer_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "kformer/model/flops.hpp"
#include "sweep/check_kernels.hpp"
#include "sweep/judge.hpp"
#include "sweep/require_memory.hpp"

namespace kformer::drivers {

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

namespace {
// A step is checked by its gradients.
Direction pass_of(const LayerCase& point) {
  return point.direction == Direction::forward ? Direction::forward : Direction::backward;
}

// A check computes attention in a form or by kernels that the case does not: the case's own kernels of it need
// no stand-in, and cases that differ in nothing else share the runs of their checks.
std::string besides_attention(const std::string& ran) {
  std::istringstream in(ran);
  std::string others;
  for (std::string name; in >> name;)
    if (name.find("attention_") == name.npos) others += name + ' ';
  return others;
}

bool all_finite(const measure::HostArrays& arrays) {
  return std::ranges::all_of(arrays, [](const auto& named) {
    return std::ranges::all_of(named.second.values, [](double value) { return std::isfinite(value); });
  });
}

// Empty: there is no scale.
std::string blame_of_scale(const CaseResult& result) {
  if (result.loss_scale == 1) return {};
  return fmt::format("; the loss scale {} is too large for {}", result.loss_scale, name_of(result.point.dtype));
}
}  // namespace

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
          m_tensors ? &m_tensors->arrays : nullptr,
          {}};
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
  record_failure(m_deck.run.on_oom, result, [&] { measure_case(point, result, stop); });
  return result;
}

void LayerSweep::measure_case(const LayerCase& point, CaseResult& result, const std::function<bool()>& stop) {
  const DType dtype = point.dtype;
  const LayerTask what = task(point);
  const auto make = [&](const LayerTask& task) {
    return [&, task](const std::shared_ptr<Ledger>& ledger) {
      return make_layer_run(point.execution_space, dtype, task, ledger);
    };
  };
  result.predicted = predicted_bytes(make(what));
  require_memory("kformer-layer", point, result.predicted,
                 [&](const LayerCase& shorter) { return predicted_bytes(make(task(shorter))); });

  const std::string not_wanted = why_no_check(m_deck.check, point.seq_len);
  const bool checked = not_wanted.empty();
  const bool output = m_deck.tensors && !m_deck.tensors->output.empty();
  std::optional<ResultRows> kept;
  if (checked) kept = ResultRows::judged;
  if (output) kept = ResultRows::all;
  measure::HostArrays results =
      measure_run(make(what),
                  {point.direction, kept, &m_deck.timing, &m_deck.profile, stop,
                   [&] { return m_limits.now(point.execution_space, dtype, result.bytes_min); }},
                  result);
  result.status = CaseStatus::unchecked;
  result.message = not_wanted;
  if (output) m_last = results;
  const bool finite = all_finite(results) && (has_finite_gradients(result) || stop());
  // Updated weights are a result, but a step is checked by its gradients.
  std::erase_if(results, [](const auto& named) { return named.first.starts_with("updated."); });
  if (checked) check_if_possible(result, [&] { check(point, judged_part(std::move(results)), result, stop); });
  if (!finite && result.status == CaseStatus::unchecked) {
    if (m_deck.check.fail) result.status = CaseStatus::failed_check;
    result.message += "; results are not finite" + blame_of_scale(result);
  }
  check_steps(point, result);
}

// Their norm says so, which only a loss scale needs. Steps may be skipped.
bool LayerSweep::has_finite_gradients(const CaseResult& result) const {
  return result.point.direction != Direction::backward ||
         m_deck.precision.loss_scaling == LossScalingRule::none || std::isfinite(result.gradient_norm);
}

// In double, by kernels that the case did not run.
LayerTask LayerSweep::reference_task(const LayerCase& point, const std::string& ran) const {
  LayerTask exact = task(point);
  exact.direction = pass_of(point);
  exact.precision = {};
  exact.algorithm = AttentionAlgorithm::flash;
  for (const char* kernel : {"attention_forward:kokkos", "attention_backward:kokkos",
                             "attention_forward:reference", "attention_backward:reference"})
    if (has_kernel(ran, kernel)) exact.algorithm = AttentionAlgorithm::standard;
  return exact;
}

// The naive computation in the same precision, with the attention of the reference.
LayerTask LayerSweep::naive_task(const LayerCase& point, const std::string& ran) const {
  LayerTask textbook = reference_task(point, ran);
  textbook.precision = task(point).precision;
  return textbook;
}

void LayerSweep::check(const LayerCase& point, const measure::HostArrays& results, CaseResult& result,
                       const std::function<bool()>& stop) {
  const bool backward = point.direction != Direction::forward;
  const DType dtype = point.dtype;
  const std::string host = reference_space(point.execution_space);
  const auto make = [&](DType in, const LayerTask& task) -> MakeRun {
    return [=](const std::shared_ptr<Ledger>& ledger) { return make_layer_run(host, in, task, ledger); };
  };
  const LayerTask in_double = reference_task(point, result.kernels), naive = naive_task(point, result.kernels);
  const DType of_naive = naive_stand_in(dtype).dtype;
  forecast_check({make(DType::f64, in_double), make(of_naive, naive)}, backward, m_references, result);
  if (!fits_check(host, result)) return;

  const auto run_by = [&](const std::string& kernels, DType in, const LayerTask& task) {
    const std::string key =
        fmt::format("{} {} {} {} {} {} {}", host, name_of(in), name_of(task.algorithm), point.batch,
                    point.seq_len, task.changed.number, name_of(task.changed.dtype));
    return m_references.get(key, kernels, backward, make(in, task), stop);
  };
  // Products by the host BLAS, where the space has one that its threads may call.
  const auto run = [&](const std::string& kernels, DType in, const LayerTask& task) {
    if (!m_without_blas.contains(host)) try {
        return run_by(with_host_blas(kernels, result.kernels), in, task);
      } catch (const NotSupported&) {
        m_without_blas.insert(host);
      }
    return run_by(kernels, in, task);
  };
  const std::string kernels = reference_kernels(besides_attention(result.kernels));
  const auto exact = run(kernels, DType::f64, in_double);
  if (!exact) return interrupted(result);
  result.check_kernels = exact->kernels;
  if (!independent(result)) return;
  record_errors(results, exact->arrays, result);
  if (!m_deck.check.fail) return not_judged(result);
  // A stand-in in another precision keeps the products of the portable kernels.
  const auto run_naive = [&](const std::string& by, const LayerTask& task) {
    return of_naive == dtype ? run(by, of_naive, task) : run_by(by, of_naive, task);
  };
  NaiveRuns runs{kernels, [&](const std::string& by) { return run_naive(by, naive); },
                 [&](const std::string& by) { return run(by, DType::f64, in_double); }};
  runs.sample = [&](const std::string& by, std::size_t number) -> NaiveSample {
    LayerTask other = naive, exactly = in_double;
    other.changed = exactly.changed = {number, of_naive};
    return {run_naive(by, other), run(kernels, DType::f64, exactly)};
  };
  const auto stored = [=](const std::string& name) {
    return name.ends_with("weight") || name.ends_with("bias") ? compute_dtype(dtype) : dtype;
  };
  const auto tokens = static_cast<std::size_t>(point.batch * point.seq_len);
  judge_case({results, dtype, stored, tokens}, *exact, runs, result);
  if (result.status != CaseStatus::failed_check) return;
  if (!std::isfinite(result.max_abs_err)) result.message += blame_of_scale(result);
}

void LayerSweep::check_steps(const LayerCase& point, CaseResult& result) const {
  if (point.direction != Direction::step || result.counted_steps > 0) return;
  if (m_deck.check.fail) result.status = CaseStatus::failed_check;
  result.message =
      fmt::format("all {} steps were skipped, because gradients were not finite; the loss scale was {}",
                  result.skipped_steps, result.loss_scale);
}

}  // namespace kformer::drivers
