// SPDX-License-Identifier: MIT
#include "sweep/reference_runs.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "kformer/core/kernel_list.hpp"
#include "kformer/memory/ledger.hpp"
#include "measure/kernel_names.hpp"
#include "sweep/check_kernels.hpp"

namespace kformer::drivers {

namespace {

constexpr std::size_t kept_bytes = std::size_t(1) << 28;
constexpr long double rows_of_a_rejection = 32;

/// What is out of tolerance by the naive computation `first`, which `kernels` ran. Nothing if it was stopped.
std::optional<std::string> fault_of(const JudgedResults& results, const ReferenceResult& exact,
                                    const NaiveRuns& runs, const std::string& kernels,
                                    const ReferenceResult& first, const PerturbedResults& perturbed) {
  NaiveResults naive{first.arrays};
  while (true) {
    const Rejection rejection = judge(results, exact.arrays, naive, perturbed);
    const auto has_enough = [&] {
      return static_cast<long double>(naive.samples) * rejection.rows >= rows_of_a_rejection;
    };
    if (rejection.text.empty() || !runs.sample || has_enough()) return rejection.text;
    while (!has_enough()) {
      const NaiveSample sample = runs.sample(kernels, naive.samples);
      if (!sample.naive || !sample.exact) return {};
      naive.add_sample(exact.arrays, sample.naive->arrays, sample.exact->arrays);
    }
  }
}

}  // namespace

std::size_t ReferenceRuns::held_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [key, result] : m_results)
    for (const auto& [name, array] : result->arrays) bytes += array.values.size() * sizeof(double);
  return bytes;
}

std::shared_ptr<ReferenceResult> ReferenceRuns::get(const std::string& key, const std::string& kernels,
                                                    bool gradients, const MakeRun& make,
                                                    const std::function<bool()>& stop) {
  const std::string both = key + ' ' + kernels, backward = both + " backward";
  // Results of backward hold those of forward too.
  for (const std::string& known : {backward, both})
    if (const auto found = m_results.find(known); found != m_results.end() && (known == backward || !gradients))
      return found->second;
  if (held_bytes() > kept_bytes) m_results.clear();

  const ForcedKernels forced(kernels);
  measure::KernelNames names;
  const auto run = make(Ledger::create());
  run->prepare(stop);
  if (stop()) return {};
  run->forward();
  run->fence();
  if (gradients) {
    if (stop()) return {};
    run->backward();
    run->fence();
  }
  return m_results[gradients ? backward : both] = std::make_shared<ReferenceResult>(
             ReferenceResult{run->results(gradients, ResultRows::judged), names.text()});
}

void judge_case(const JudgedResults& results, const ReferenceResult& exact, const NaiveRuns& runs,
                Measurement& result, const std::string& before) {
  const auto naive = runs.naive(runs.kernels);
  if (!naive) return interrupted(result);
  if (!has_independent_limits(result, naive->kernels, before)) return;
  std::shared_ptr<ReferenceResult> perturbed;
  if (runs.perturbed) {
    perturbed = runs.perturbed();
    if (!perturbed) return interrupted(result);
  }
  const PerturbedResults changed{perturbed ? &perturbed->arrays : nullptr, runs.perturbed_scale};
  auto fault = fault_of(results, exact, runs, runs.kernels, *naive, changed);
  if (!fault) return interrupted(result);
  if (const std::string own = with_own_sums(runs.kernels, result.kernels);
      !fault->empty() && own != runs.kernels) {
    const auto right = runs.in_double(own);
    if (!right) return interrupted(result);
    if (disagreement(right->arrays, exact.arrays).empty()) {
      const auto own_naive = runs.naive(own);
      if (!own_naive) return interrupted(result);
      fault = fault_of(results, exact, runs, own, *own_naive, changed);
      if (!fault) return interrupted(result);
    }
  }
  result.status = fault->empty() ? CaseStatus::ok : CaseStatus::failed_check;
  result.message = *fault;
}

void forecast_check(const std::vector<MakeRun>& runs, bool gradients, const ReferenceRuns& kept,
                    Measurement& result, std::size_t copies) {
  const ForcedKernels none_of_the_case("");
  std::size_t largest = 0, judged = 0;
  for (const MakeRun& make : runs) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const auto run = make(ledger);
    largest = std::max(largest, ledger->peak_total());
    std::size_t elements = 0;
    for (const std::size_t size : run->result_sizes(gradients)) elements += judged_elements(size);
    judged = std::max(judged, elements);
  }
  result.check_held = kept.held_bytes();
  result.check_bytes = result.check_held + largest + copies * judged * sizeof(double);
}

}  // namespace kformer::drivers
