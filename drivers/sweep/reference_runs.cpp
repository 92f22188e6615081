// SPDX-License-Identifier: MIT
#include "sweep/reference_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include "kformer/core/kernel_list.hpp"
#include "kformer/memory/ledger.hpp"
#include "measure/kernel_names.hpp"
#include "measure/memory_available.hpp"
#include "measure/spaces.hpp"
#include "sweep/judge.hpp"

namespace kformer::drivers {

namespace {

constexpr std::size_t kept_elements = std::size_t(1) << 25;

// A function, and whether it has tuned kernels; without them the other kernel is the reference.
struct Function {
  const char* name;
  bool tuned;
};

constexpr std::array functions{Function{"linear_forward", true},
                               Function{"linear_backward_input", true},
                               Function{"linear_backward_weight", true},
                               Function{"linear_backward_bias", false},
                               Function{"rms_norm_forward", true},
                               Function{"qk_norm_forward", true},
                               Function{"rms_norm_backward", true},
                               Function{"rope_tables", false},
                               Function{"rope_forward", true},
                               Function{"rope_backward", true},
                               Function{"swiglu_forward", true},
                               Function{"swiglu_backward", true},
                               Function{"attention_forward", true},
                               Function{"attention_backward", true},
                               Function{"standard_attention_forward", false},
                               Function{"standard_attention_backward", false}};

// Fused functions run the kernels of their parts, one after the other.
constexpr const char* parts_alone = "linear_swiglu:separate,linear_rope:separate";

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::size_t elements_of(const measure::HostArrays& arrays) {
  std::size_t elements = 0;
  for (const auto& [name, array] : arrays) elements += array.values.size();
  return elements;
}

}  // namespace

ReferenceResult ReferenceRuns::get(const std::string& key, const std::string& kernels, bool gradients,
                                   const MakeRun& make, const std::function<bool()>& stop) {
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
  run->forward();
  if (gradients) run->backward();
  run->fence();
  return m_results[gradients ? backward : both] = {run->results(gradients, ResultRows::judged), names.text()};
}

std::string reference_space(const std::string& space) {
  if (measure::runs_on_host(space)) return space;
  const std::vector<std::string> spaces = measure::built_spaces();
  return *std::ranges::find_if(spaces, measure::runs_on_host);
}

std::string portable_kernels() {
  std::string kernels = parts_alone;
  for (const Function& f : functions) kernels += std::string(",") + f.name + ":kokkos";
  return kernels;
}

std::string reference_kernels(const std::string& ran) {
  // The fused kernels multiply as the tuned ones of linear_forward do.
  const bool fused =
      ran.find("linear_swiglu_forward:simd") != ran.npos || ran.find("linear_rope_forward:simd") != ran.npos;
  std::string kernels = parts_alone;
  for (const Function& f : functions) {
    const std::string name = f.name;
    if (!has_kernel(ran, name + ":kokkos"))
      kernels += "," + name + ":kokkos";
    else if (!f.tuned || (fused && name == "linear_forward"))
      kernels += "," + name + ":reference";
  }
  return kernels;
}

bool has_kernel(const std::string& ran, const std::string& name) {
  return std::ranges::count(words_of(ran), name) > 0;
}

std::string shared_kernels(const std::string& ran, const std::string& reference) {
  std::string shared;
  for (const std::string& name : words_of(reference))
    if (!name.ends_with(":separate") && has_kernel(ran, name)) shared += (shared.empty() ? "" : " ") + name;
  return shared;
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

bool fits_check(const std::string& space, Measurement& result) {
  const auto available = measure::memory_available(space);
  if (!available || result.check_bytes <= *available) return true;
  result.message = fmt::format("not checked: the check needs {}, but only {} is available",
                               format_bytes(result.check_bytes), format_bytes(*available));
  return false;
}

bool independent(Measurement& result) {
  const std::string shared = shared_kernels(result.kernels, result.check_kernels);
  if (shared.empty()) return true;
  result.message = "not checked: the reference would run kernels of the case: " + shared;
  return false;
}

}  // namespace kformer::drivers
