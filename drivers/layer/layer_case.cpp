// SPDX-License-Identifier: MIT
#include "layer/layer_case.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "common/allocation_witness.hpp"
#include "common/memory_available.hpp"
#include "kformer/core/tolerance.hpp"

namespace kformer::drivers {

namespace {

// Names the kernels of one case, each once, in the order they first ran.
class KernelNames final : public KernelObserver {
 public:
  KernelNames() : m_previous(set_kernel_observer(this)) {}
  ~KernelNames() override { set_kernel_observer(m_previous); }
  void chosen(const char*, const char* function, const char* kernel) override {
    const std::string entry = std::string(function) + ':' + kernel;
    if (m_seen.insert(entry).second) m_text += (m_text.empty() ? "" : " ") + entry;
  }
  const std::string& text() const { return m_text; }

 private:
  KernelObserver* m_previous;
  std::set<std::string> m_seen;
  std::string m_text;
};

const char* direction_name(bool backward) { return backward ? "backward" : "forward"; }

// One forward and, if asked for, one backward, in the regions "forward" and "backward". Returns the seconds of
// the last.
double run_once(LayerRun& run, bool backward) {
  const auto timed = [&](bool back) {
    run.fence();
    const auto begin = std::chrono::steady_clock::now();
    {
      Region region(direction_name(back));
      back ? run.backward() : run.forward();
    }
    run.fence();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double forward = timed(false);
  return backward ? timed(true) : forward;
}

}  // namespace

DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (name == to_string(dtype)) return dtype;
  throw NotSupported("kformer-layer: '" + name + "' is not a storage type; use f32, bf16, f16 or f64");
}

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
  const double weights = static_cast<double>(config.parameters()), rows = static_cast<double>(shape.rows());
  const double hidden = static_cast<double>(config.hidden_size);
  if (!backward) return size * (weights + 2 * rows * hidden);
  const double saved = rows * static_cast<double>(config.qkv_size() + config.attention_size() +
                                                  config.hidden_size + 2 * config.intermediate_size);
  return size * (weights + 3 * rows * hidden + saved) + 2 * accumulated * weights;
}

std::size_t predicted_bytes(const std::string& space, DType dtype, const LayerTask& task) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  make_layer_run(space, dtype, task, ledger);
  return ledger->peak_total();
}

LayerSweep::LayerSweep(const LayerSweepDeck& deck, const LlamaConfig& config, const LayerTensors* tensors)
    : m_deck(deck), m_config(config), m_tensors(tensors) {}

LayerTask LayerSweep::task(const LayerCase& point) const {
  return {m_config,
          {point.batch, point.seq_len},
          point.impl == AttentionImpl::standard ? AttentionAlgorithm::standard : AttentionAlgorithm::flash,
          point.direction == Direction::backward ? LayerMode::training : LayerMode::inference,
          static_cast<std::uint64_t>(m_deck.run.seed),
          m_tensors ? &m_tensors->arrays : nullptr};
}

CaseResult LayerSweep::run(const LayerCase& point, const std::function<bool()>& stop) {
  CaseResult result;
  result.point = point;
  result.max_abs_err = result.max_rel_err = std::numeric_limits<double>::quiet_NaN();
  m_last.clear();
  const bool backward = point.direction == Direction::backward;
  result.flops = layer_flops(m_config, {point.batch, point.seq_len}, backward);
  result.bytes_min = layer_bytes(m_config, {point.batch, point.seq_len}, dtype_of_name(point.dtype), backward);
  try {
    measure(point, result, stop);
  } catch (const OutOfMemory& error) {
    if (m_deck.run.on_oom == OnOutOfMemory::abort) throw;
    result.status = CaseStatus::out_of_memory;
    result.message = error.what();
  } catch (const std::exception& error) {
    result.status = CaseStatus::error;
    result.message = error.what();
  }
  return result;
}

void LayerSweep::measure(const LayerCase& point, CaseResult& result, const std::function<bool()>& stop) {
  const DType dtype = dtype_of_name(point.dtype);
  const LayerTask what = task(point);
  const bool backward = point.direction == Direction::backward;
  result.predicted = predicted_bytes(point.execution_space, dtype, what);
  if (const auto available = memory_available(point.execution_space);
      available && result.predicted > *available) {
    const auto fits = largest_seq_len(what.shape.seq_len, [&](std::int64_t seq_len) {
      LayerTask smaller = what;
      smaller.shape.seq_len = seq_len;
      return predicted_bytes(point.execution_space, dtype, smaller) <= *available;
    });
    throw OutOfMemory(fmt::format(
        "kformer-layer: the case needs {}, {} are available; with batch {} the longest sequence that "
        "fits is {}",
        format_bytes(result.predicted), format_bytes(*available), point.batch, fits));
  }

  AllocationWitness* witness =
      m_deck.profile.memory == MemoryProfile::peak ? &AllocationWitness::install() : nullptr;
  if (witness) witness->reset_peaks();
  const auto ledger = Ledger::create();
  HostArrays results;
  {
    KernelNames names;
    const auto run = make_layer_run(point.execution_space, dtype, what, ledger);
    run->prepare();
    // The first pass warms up, gives the results, and carries the profiler; none of it is a timing sample.
    double warm = 0;
    if (m_deck.profile.kernels) {
      Profiler profiler;
      warm = run_once(*run, backward);
      result.regions = profiler.regions();
      result.profile = profiler.kernels();
    } else {
      warm = run_once(*run, backward);
    }
    const bool checked =
        m_deck.check.reference == CheckReference::f64 && point.seq_len <= m_deck.check.max_seq_len;
    if (checked || (m_deck.tensors && !m_deck.tensors->output.empty())) results = run->results(backward);
    for (std::int64_t i = 1; i < m_deck.timing.warmup && !stop(); ++i)
      warm = run->sample(backward, {.repeats = 1, .min_time_s = 0}, 0, stop).seconds.front();
    result.samples = run->sample(
        backward, {m_deck.timing.repeats, m_deck.timing.min_time_s, m_deck.timing.max_time_s}, warm, stop);
    result.kernels = names.text();
    result.status = checked ? CaseStatus::ok : CaseStatus::unchecked;
  }
  for (int c = 0; c < memory_classes; ++c)
    result.peak[static_cast<std::size_t>(c)] = ledger->peak(static_cast<MemoryClass>(c));
  result.peak_total = ledger->peak_total();
  if (witness && witness->installed())
    for (const auto& [name, space] : witness->spaces()) result.witnessed[name] = space.peak;
  if (result.status == CaseStatus::ok) check(point, results, result);
  m_last = std::move(results);
}

const HostArrays& LayerSweep::oracle(const LayerCase& point) {
  const bool backward = point.direction == Direction::backward;
  const std::string key = fmt::format("{} {} {}", point.execution_space, point.batch, point.seq_len);
  // Results of backward hold those of forward too.
  if (m_oracle.key == key && (!backward || m_oracle.results.size() > 1)) return m_oracle.results;
  m_oracle = {};
  LayerTask exact = task(point);
  exact.algorithm = AttentionAlgorithm::standard;
  exact.mode = LayerMode::training;
  const auto run = make_layer_run(point.execution_space, DType::f64, exact, Ledger::create());
  run->prepare();
  run->forward();
  run->backward();
  m_oracle = {key, run->results(true)};
  return m_oracle.results;
}

void LayerSweep::check(const LayerCase& point, const HostArrays& results, CaseResult& result) {
  const bool backward = point.direction == Direction::backward;
  const DType dtype = dtype_of_name(point.dtype);
  // The naive computation in the same precision: standard attention through the portable kernels, every array
  // stored. In double it would be as good as the oracle, and equal to it where both run the same kernels; so
  // the errors of float stand in, smaller by the ratio of the two roundings, and half as much again for the
  // oracle's own.
  const bool as_good_as_the_oracle = dtype == DType::f64;
  const DType naive_dtype = as_good_as_the_oracle ? DType::f32 : dtype;
  const long double naive_scale = as_good_as_the_oracle ? 1.5L * 0x1p-29L : 1.0L;
  LayerTask textbook = task(point);
  textbook.algorithm = AttentionAlgorithm::standard;
  const auto naive_run = [&] {
    const ForcedKernels portable(
        "linear:kokkos,standard_attention:kokkos,rms_norm:kokkos,rope:kokkos,swiglu:kokkos");
    auto run = make_layer_run(point.execution_space, naive_dtype, textbook, Ledger::create());
    run->prepare();
    run->forward();
    if (backward) run->backward();
    run->fence();
    return run;
  }();
  const HostArrays naive = naive_run->results(backward);
  const HostArrays& exact = oracle(point);

  // The rule, over all tensors of the case at once, each in units of its own size: a single small tensor, such
  // as a bias, has too few elements for its largest error to be steady.
  result.max_abs_err = result.max_rel_err = 0;
  ErrorNorms error_of_all, limit_of_all;
  for (const auto& [name, array] : results) {
    const auto& reference = exact.at(name).values;
    const ErrorNorms size = magnitude(reference), error = error_norms(array.values, reference);
    const DType stored = name.ends_with("weight") || name.ends_with("bias") ? compute_dtype(dtype) : dtype;
    ErrorNorms of_naive = error_norms(naive.at(name).values, reference);
    of_naive.max *= naive_scale;
    of_naive.rms *= naive_scale;
    const ErrorNorms limit = allowed_error(stored, of_naive, size);
    result.max_abs_err = std::max(result.max_abs_err, static_cast<double>(error.max));
    if (size.max > 0)
      result.max_rel_err = std::max(result.max_rel_err, static_cast<double>(error.max / size.max));
    const long double unit = size.rms > 0 ? size.rms : 1;
    error_of_all.max = std::max(error_of_all.max, error.max / unit);
    limit_of_all.max = std::max(limit_of_all.max, limit.max / unit);
    error_of_all.rms = std::hypot(error_of_all.rms, error.rms / unit);
    limit_of_all.rms = std::hypot(limit_of_all.rms, limit.rms / unit);
  }
  if (m_deck.check.fail && !(error_of_all.max <= limit_of_all.max && error_of_all.rms <= limit_of_all.rms)) {
    result.status = CaseStatus::failed_check;
    result.message = fmt::format(
        "errors in units of each tensor's rms: largest {:.3e} (limit {:.3e}), rms {:.3e} (limit {:.3e})",
        static_cast<double>(error_of_all.max), static_cast<double>(limit_of_all.max),
        static_cast<double>(error_of_all.rms), static_cast<double>(limit_of_all.rms));
  }
}

}  // namespace kformer::drivers
