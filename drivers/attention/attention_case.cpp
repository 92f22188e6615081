// SPDX-License-Identifier: MIT
#include "attention/attention_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kformer/core/tolerance.hpp"
#include "sweep/check_kernels.hpp"
#include "sweep/judge.hpp"
#include "sweep/require_memory.hpp"

namespace kformer::drivers {

namespace {

MakeRun maker(const std::string& space, const AttentionTask& task) {
  return [=](const std::shared_ptr<Ledger>& ledger) { return make_attention_run(space, task, ledger); };
}

// Of both forms of attention the one that the case is not; flash where standard attention cannot do it.
AttentionAlgorithm other_form(const AttentionTask& task) {
  return task.impl == AttentionAlgorithm::flash && standard_refusal(task).empty() ? AttentionAlgorithm::standard
                                                                                  : AttentionAlgorithm::flash;
}

// In double, by the other form of attention or, where only flash attention can do it, by another kernel.
AttentionTask exact(AttentionTask task) {
  task.shape.dtype = DType::f64;
  task.impl = other_form(task);
  return task;
}

// The naive computation: the same form of attention in the same precision, by other kernels. Flash attention rounds
// what it saves for backward, which standard attention does not.
AttentionTask naive(AttentionTask task) {
  task.shape.dtype = naive_stand_in(task.shape.dtype).dtype;
  return task;
}

// What rounding does where the naive run happens to be exact, as with a softmax that is nearly 0 or 1: flash attention
// in double whose operands and saved results are off by `change`, 2⁻³⁰, in place of the roundings of the case. The
// output is off by more: backward sums its products with grad_out, and rounds that sum as it does others.
constexpr double change = 0x1p-30;

long double unit_roundoff(DType dtype) { return ulp(dtype, 1) / 2; }

AttentionTask perturbed(AttentionTask task, std::uint64_t number = 0) {
  const DType stored = task.shape.dtype;
  const double sums = std::sqrt(std::max(1.0, static_cast<double>(task.shape.v_head_dim) / 2)),
               of_storage = static_cast<double>(unit_roundoff(stored) / unit_roundoff(compute_dtype(stored)));
  task.shape.dtype = DType::f64;
  task.impl = AttentionAlgorithm::flash;
  task.perturbation = {change, change * std::hypot(of_storage, sums), number};
  return task;
}

// The output is changed after it was computed, for backward alone.
std::shared_ptr<ReferenceResult> without_output(std::shared_ptr<ReferenceResult> changed) {
  if (changed) changed->arrays.erase("out");
  return changed;
}

}  // namespace

AttentionSweep::AttentionSweep(const AttentionCompareDeck& deck, const AttentionTensors* tensors)
    : m_deck(deck), m_tensors(tensors) {}

AttentionTask AttentionSweep::task(const AttentionCase& p) const {
  return {{p.dtype, p.batch, query_length(p), p.seq_len, p.num_attention_heads, p.num_key_value_heads,
           p.head_dim, p.v_head_dim},
          {m_deck.attention.scale, p.causal, p.window, m_deck.attention.softcap, m_deck.attention.compute},
          p.impl,
          p.direction == Direction::backward,
          static_cast<std::uint64_t>(m_deck.run.seed),
          {},
          m_tensors ? &m_tensors->arrays : nullptr};
}

AttentionResult AttentionSweep::run(const AttentionCase& point, const std::function<bool()>& stop) {
  AttentionResult result;
  result.point = point;
  m_last.clear();
  result.flops = attention_flops(task(point));
  result.bytes_min = attention_bytes(task(point));
  record_failure(m_deck.run.on_oom, result, [&] { measure_case(point, result, stop); });
  return result;
}

void AttentionSweep::measure_case(const AttentionCase& point, AttentionResult& result,
                                  const std::function<bool()>& stop) {
  const AttentionTask what = task(point);
  const MakeRun make = maker(point.execution_space, what);
  result.predicted = predicted_bytes(make);
  if (const auto limit = m_deck.limits.device_bytes;
      limit > 0 && result.predicted > static_cast<std::size_t>(limit)) {
    result.status = CaseStatus::skipped_memory;
    result.message = fmt::format("the case needs {}, but limits.device_bytes is {}",
                                 format_bytes(result.predicted), format_bytes(static_cast<std::size_t>(limit)));
    return;
  }
  require_memory("kformer-attention", point, result.predicted, [&](const AttentionCase& shorter) {
    return predicted_bytes(maker(point.execution_space, task(shorter)));
  });

  const std::string not_wanted = why_no_check(m_deck.check, std::max(point.seq_len, query_length(point)));
  const bool checked = not_wanted.empty();
  const bool output = m_deck.tensors && !m_deck.tensors->output.empty();
  std::optional<ResultRows> kept;
  if (checked) kept = ResultRows::judged;
  if (output) kept = ResultRows::all;
  measure::HostArrays results =
      measure_run(make,
                  {point.direction, kept, &m_deck.timing, &m_deck.profile, stop,
                   [&] { return m_limits.now(point.execution_space, point.dtype, result.bytes_min); }},
                  result);
  result.status = CaseStatus::unchecked;
  result.message = not_wanted;
  if (output) m_last = results;
  if (checked) check_if_possible(result, [&] { check(judged_part(std::move(results)), result, stop); });
}

void AttentionSweep::check(const measure::HostArrays& results, AttentionResult& result,
                           const std::function<bool()>& stop) {
  const AttentionCase& p = result.point;
  const AttentionTask what = task(p), in_double = exact(what), textbook = naive(what), off = perturbed(what);
  AttentionTask same_in_double = what, of_lse = what;
  same_in_double.shape.dtype = of_lse.shape.dtype = DType::f64;
  of_lse.impl = AttentionAlgorithm::flash;
  of_lse.backward = false;
  const std::string host = reference_space(p.execution_space), kernels = reference_kernels(result.kernels);
  std::vector<MakeRun> makers{maker(host, in_double), maker(host, of_lse), maker(host, textbook)};
  if (what.has_shared_gradients() || with_own_sums(kernels, result.kernels) != kernels)
    makers.push_back(maker(host, same_in_double));
  // The case, both runs of the limits, the reference, and a tensor of limits.
  constexpr std::size_t copies = 5;
  if (what.backward) makers.push_back(maker(host, off));
  forecast_check(makers, what.backward, m_references, result, copies);
  if (!fits_check(host, result)) return;

  const auto run = [&](const AttentionTask& task, const std::string& forced) {
    const std::string key = fmt::format(
        "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", host, name_of(task.shape.dtype), name_of(task.impl),
        p.causal, p.window, p.num_attention_heads, p.num_key_value_heads, p.head_dim, p.v_head_dim, p.batch,
        p.q_len, p.seq_len, task.perturbation.operands, task.perturbation.out, task.perturbation.number);
    return m_references.get(key, forced, task.backward, maker(host, task), stop);
  };
  // Flash attention that only flash attention can check: in textbook order.
  const bool by_reference = what.impl == AttentionAlgorithm::flash &&
                            in_double.impl == AttentionAlgorithm::flash &&
                            !has_kernel(result.kernels, "attention_forward:reference") &&
                            !has_kernel(result.kernels, "attention_backward:reference");
  const auto reference = run(in_double, by_reference ? "attention:reference" : kernels);
  if (!reference) return interrupted(result);
  // Standard attention has no log-sum-exp.
  if (results.contains("lse") && !reference->arrays.contains("lse")) {
    const auto flash = run(of_lse, kernels);
    if (!flash) return interrupted(result);
    reference->arrays["lse"] = flash->arrays.at("lse");
    reference->kernels = joined(reference->kernels, flash->kernels);
  }
  result.check_kernels = reference->kernels;
  if (!independent(result)) return;
  record_errors(results, reference->arrays, result);
  if (!m_deck.check.fail) return not_judged(result);
  if (what.has_shared_gradients()) {
    const auto shared = run(same_in_double, kernels);
    if (!shared) return interrupted(result);
    result.message = disagreement(shared->arrays, reference->arrays);
    if (!result.message.empty()) {
      result.status = CaseStatus::failed_check;
      return;
    }
  }
  const DType dtype = what.shape.dtype;
  const auto stored = [=](const std::string& name) {
    return name == "lse" || name == "grad.sinks" ? compute_dtype(dtype) : dtype;
  };
  NaiveRuns runs{kernels, [&](const std::string& by) { return run(textbook, by); },
                 [&](const std::string& by) { return run(same_in_double, by); }};
  if (what.backward) {
    runs.perturbed = [&] { return without_output(run(off, kernels)); };
    // In double the reference has errors, too.
    runs.perturbed_scale = unit_roundoff(compute_dtype(dtype)) / change * (dtype == DType::f64 ? 1.5L : 1.0L);
    // One draw of a gradient that is a single number says little of another.
    runs.sample = [&](const std::string& by, std::size_t number) -> NaiveSample {
      const auto first = run(textbook, by), other = without_output(run(perturbed(what, number), kernels));
      if (!first || !other) return {};
      const PerturbedResults changed{&other->arrays, runs.perturbed_scale};
      return {std::make_shared<ReferenceResult>(
                  ReferenceResult{widened(first->arrays, reference->arrays, changed, dtype), first->kernels}),
              reference};
    };
  }
  judge_case({results, dtype, stored}, *reference, runs, result);
}

}  // namespace kformer::drivers
