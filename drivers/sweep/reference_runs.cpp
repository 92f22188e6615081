// SPDX-License-Identifier: MIT
#include "sweep/reference_runs.hpp"

#include <algorithm>
#include <vector>

#include "kformer/core/kernel_list.hpp"
#include "kformer/memory/ledger.hpp"
#include "measure/kernel_names.hpp"
#include "sweep/judge.hpp"

namespace kformer::drivers {

namespace {

constexpr std::size_t kept_elements = std::size_t(1) << 25;

std::size_t elements_of(const measure::HostArrays& arrays) {
  std::size_t elements = 0;
  for (const auto& [name, array] : arrays) elements += array.values.size();
  return elements;
}

}  // namespace

std::optional<ReferenceResult> ReferenceRuns::get(const std::string& key, const std::string& kernels,
                                                  bool gradients, const MakeRun& make,
                                                  const std::function<bool()>& stop) {
  const std::string both = key + ' ' + kernels, backward = both + " backward";
  // Results of backward hold those of forward too.
  for (const std::string& known : {backward, both})
    if (const auto found = m_results.find(known); found != m_results.end() && (known == backward || !gradients))
      return found->second;
  std::size_t kept = 0;
  for (const auto& [name, result] : m_results) kept += elements_of(result.arrays);
  if (kept > kept_elements) m_results.clear();

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
  return m_results[gradients ? backward : both] = {run->results(gradients, ResultRows::judged), names.text()};
}

std::size_t check_bytes(const MakeRun& reference, const MakeRun& naive, bool gradients) {
  std::size_t largest = 0, judged = 0;
  for (const MakeRun& make : {reference, naive}) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const auto run = make(ledger);
    largest = std::max(largest, ledger->peak_total());
    judged = 0;
    for (const std::size_t size : run->result_sizes(gradients)) judged += judged_elements(size);
  }
  return largest + 3 * judged * sizeof(double);
}

}  // namespace kformer::drivers
