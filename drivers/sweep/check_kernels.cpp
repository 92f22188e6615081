// SPDX-License-Identifier: MIT
#include "sweep/check_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include "kformer/memory/format_bytes.hpp"
#include "measure/memory_available.hpp"
#include "measure/spaces.hpp"

namespace kformer::drivers {

namespace {

// A function, and whether it has tuned kernels; without them the other kernel is the reference.
struct Function {
  const char* name;
  bool tuned;
};

constexpr std::array functions{Function{"dequantize", false},
                               Function{"embedding_forward", true},
                               Function{"quantized_embedding_forward", false},
                               Function{"quantized_linear_forward", true},
                               Function{"kv_append", false},
                               Function{"sample", false},
                               Function{"token_log_probabilities", false},
                               Function{"linear_forward", true},
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
                               Function{"standard_attention_forward", true},
                               Function{"standard_attention_backward", true}};

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

std::string portable_kernels() {
  std::string kernels = parts_alone;
  for (const Function& f : functions) kernels += std::string(",") + f.name + ":kokkos";
  return kernels;
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

std::string with_host_blas(std::string kernels, const std::string& ran) {
  if (ran.find(":host_blas") != ran.npos) return kernels;
  const std::string portable = ":kokkos";
  for (const char* product : {",linear_forward", ",linear_backward_input", ",linear_backward_weight"})
    if (const auto at = kernels.find(product + portable); at != kernels.npos)
      kernels.replace(at + std::string(product).size(), portable.size(), ":host_blas");
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

bool fits_check(const std::string& space, Measurement& result) {
  const auto available = measure::memory_available(space);
  if (!available || result.check_bytes <= *available) return true;
  result.message = fmt::format("not checked: the check needs {}, but only {} is available",
                               format_bytes(result.check_bytes), format_bytes(*available));
  return false;
}

void interrupted(Measurement& result) { result.message = "not checked: the check was interrupted"; }

bool independent(Measurement& result, const std::string& before) {
  const std::string shared = shared_kernels(before + " " + result.kernels, result.check_kernels);
  if (shared.empty()) return true;
  result.message = "not checked: the reference would run kernels of the case: " + shared;
  return false;
}

}  // namespace kformer::drivers
