// SPDX-License-Identifier: MIT
#include "sweep/check_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include "app/program.hpp"
#include "kformer/memory/format_bytes.hpp"
#include "measure/memory_available.hpp"
#include "measure/spaces.hpp"

namespace kformer::drivers {

namespace {

// A function; whether it has tuned kernels, without which the other kernel is the reference; whether its results
// are sums, whose errors depend on the order.
struct Function {
  const char* name;
  bool tuned, sums;
};

constexpr std::array functions{Function{"dequantize", false, false},
                               Function{"embedding_forward", true, false},
                               Function{"quantized_embedding_forward", false, false},
                               Function{"quantized_linear_forward", true, true},
                               Function{"quantized_linear_backward_input", true, true},
                               Function{"kv_append", false, false},
                               Function{"sample", false, false},
                               Function{"token_log_probabilities", false, false},
                               Function{"linear_forward", true, true},
                               Function{"linear_backward_input", true, true},
                               Function{"linear_backward_weight", true, true},
                               Function{"linear_backward_bias", false, true},
                               Function{"gradient_norm", true, false},
                               Function{"rms_norm_forward", true, false},
                               Function{"qk_norm_forward", true, false},
                               Function{"rms_norm_backward", true, true},
                               Function{"rope_tables", false, false},
                               Function{"rope_forward", true, false},
                               Function{"rope_backward", true, false},
                               Function{"swiglu_forward", true, false},
                               Function{"swiglu_backward", true, false},
                               Function{"attention_forward", true, true},
                               Function{"attention_backward", true, true},
                               Function{"standard_attention_forward", true, true},
                               Function{"standard_attention_backward", true, true}};

// Fused functions run the kernels of their parts, one after the other.
constexpr const char* parts_alone = "linear_swiglu:separate,linear_rope:separate";

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::string reference_space(const std::string& space) {
  if (measure::runs_on_host(space)) return space;
  const std::vector<std::string> spaces = measure::built_spaces();
  return *std::ranges::find_if(spaces, measure::runs_on_host);
}

std::string reference_kernels(const std::string& ran, Instead instead) {
  // The fused kernels multiply as the tuned ones of linear_forward do.
  const bool fused =
      ran.find("linear_swiglu_forward:simd") != ran.npos || ran.find("linear_rope_forward:simd") != ran.npos;
  std::string kernels = parts_alone;
  for (const Function& f : functions) {
    const std::string name = f.name;
    if (!has_kernel(ran, name + ":kokkos"))
      kernels += "," + name + ":kokkos";
    else if (!f.tuned || instead == Instead::reference || (fused && name == "linear_forward"))
      kernels += "," + name + ":reference";
  }
  return kernels;
}

std::string with_own_sums(std::string kernels, const std::string& ran) {
  for (const Function& f : functions) {
    const std::string function = std::string(f.name) + ':';
    if (!f.sums || !has_kernel(ran, function + "kokkos")) continue;
    if (const auto at = kernels.find("," + function); at != kernels.npos)
      kernels.erase(at, kernels.find(',', at + 1) - at);
    kernels += "," + function + "kokkos";
  }
  return kernels;
}

std::string with_host_blas(std::string kernels, const std::string& ran) {
  if (ran.find(":host_blas") != ran.npos) return kernels;
  const std::string portable = ":kokkos";
  for (const std::string product : {"linear_forward", "linear_backward_input", "linear_backward_weight"})
    if (const auto at = kernels.find("," + product + portable);
        at != kernels.npos && !has_kernel(ran, product + portable))
      kernels.replace(at + 1 + product.size(), portable.size(), ":host_blas");
  return kernels;
}

std::string joined(std::string ran, const std::string& more) {
  for (const std::string& name : words_of(more))
    if (!has_kernel(ran, name)) ran += (ran.empty() ? "" : " ") + name;
  return ran;
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

bool fits_check(const std::string& space, Measurement& result, int processes) {
  auto available = measure::memory_available(space);
  if (available) *available /= static_cast<std::size_t>(processes);
  const std::size_t needed = result.check_bytes - result.check_held;
  if (!available || needed <= *available) return true;
  result.message = fmt::format("not checked: the check needs {}, but only {} is available",
                               format_bytes(needed), format_bytes(*available));
  return false;
}

std::string why_no_check(const CheckTable& check, std::int64_t seq_len) {
  if (check.reference == CheckReference::none) return "not checked: check.reference is \"none\"";
  if (seq_len <= check.max_seq_len) return {};
  return fmt::format("not checked: seq_len {} is more than check.max_seq_len = {}", seq_len, check.max_seq_len);
}

void check_if_possible(Measurement& result, const std::function<void()>& check) {
  try {
    check();
  } catch (const std::exception& error) {
    result.status = CaseStatus::unchecked;
    result.message = "not checked: " + out_of_memory_text(error).value_or(error.what());
  }
}

void interrupted(Measurement& result) { result.message = check_was_interrupted; }

bool independent(Measurement& result, const std::string& before) {
  const std::string shared = shared_kernels(before + " " + result.kernels, result.check_kernels);
  if (shared.empty()) return true;
  result.message = "not checked: the reference would run kernels of the case: " + shared;
  return false;
}

void not_judged(Measurement& result) { result.message = "errors recorded but not judged: check.fail is false"; }

bool has_independent_limits(Measurement& result, const std::string& naive, const std::string& before) {
  const std::string shared = shared_kernels(before + " " + result.kernels, naive);
  if (shared.empty()) return true;
  result.message =
      "errors recorded but not judged: the tolerance would be set by kernels of the case: " + shared;
  return false;
}

}  // namespace kformer::drivers
