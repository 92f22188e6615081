// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "kformer/core/types/dtype.hpp"
#include "kformer/core/types/precision.hpp"

/// \file
/// Which kernels must accept a problem, by their names, from what Linux says of the processor and from the
/// operands. Nothing here calls the `reject` of a kernel or what that uses: a kernel that refuses too much fails.

namespace kformer::Testing {

using ProcessorFlags = std::set<std::string>;

/// The flags of an x86 processor as /proc/cpuinfo has them; none elsewhere.
inline const ProcessorFlags& processor_flags() {
  static const ProcessorFlags flags = [] {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line) && !line.starts_with("flags")) continue;
    std::istringstream words(line);
    return ProcessorFlags(std::istream_iterator<std::string>(words), {});
  }();
  return flags;
}

/// The flags that an instruction set of SIMD kernels needs, or nothing if the name is not one of them.
inline std::optional<ProcessorFlags> flags_needed(std::string_view isa) {
  ProcessorFlags avx512{"avx512f", "avx512bw", "avx512dq", "avx512vl"};
  const auto with = [&](const char* more) {
    ProcessorFlags all = avx512;
    all.insert(more);
    return all;
  };
  if (isa == "generic") return ProcessorFlags{};
  if (isa == "avx2") return ProcessorFlags{"avx2", "fma", "f16c"};
  if (isa == "avx512") return avx512;
  if (isa == "avx512_bf16") return with("avx512_bf16");
  if (isa == "avx512_vnni") return with("avx512_vnni");
  if (isa == "amx_bf16") {
    avx512.insert({"amx_tile", "amx_bf16"});
    return avx512;
  }
  return std::nullopt;
}

/// The instruction set at the end of a kernel's name, or nothing for kernels that have none.
inline std::optional<std::string_view> isa_of(std::string_view kernel) {
  for (const std::string_view prefix : {"simd_decode_", "simd_"})
    if (kernel.starts_with(prefix)) return kernel.substr(prefix.size());
  return std::nullopt;
}

/// The type in which a problem's activations are stored.
template <class Problem>
DType storage_of(const Problem& p) {
  if constexpr (requires { p.x; })
    return p.x.dtype;
  else if constexpr (requires { p.q.x; })
    return p.q.x.dtype;
  else if constexpr (requires { p.q; })
    return p.q.dtype;
  else if constexpr (requires { p.logits; })
    return p.logits.dtype;
  else if constexpr (requires { p.gate; })
    return p.gate.dtype;
  else if constexpr (requires { p.dy; })
    return p.dy.dtype;
  else
    return DType::f32;
}

/// Queries of the longest sequence times the query heads of a key head.
template <class Problem>
std::int64_t rows_of_a_key_head(const Problem& p) {
  std::int64_t longest = p.q.extent[1];
  if (const auto* starts = static_cast<const std::int32_t*>(p.extras.cu_seqlens_q.data)) {
    longest = 0;
    for (std::int64_t n = 0; n + 1 < p.extras.cu_seqlens_q.extent[0]; ++n)
      longest = std::max<std::int64_t>(longest, starts[n + 1] - starts[n]);
  }
  return longest * p.q.extent[2] / std::max<std::int64_t>(1, p.k.extent[2]);
}

/// Whether the operands allow a SIMD kernel (docs/blocks).
template <class Problem>
bool operands_allow(std::string_view kernel, std::string_view isa, const Problem& p) {
  if ((isa == "avx512_bf16" || isa == "amx_bf16") && storage_of(p) != DType::bf16) return false;
  if constexpr (requires { p.weight.format; })
    if (storage_of(p) == DType::f64) return false;
  if constexpr (requires { p.extras.cu_seqlens_q; }) {
    if (isa == "avx512_bf16" && p.options.compute == Precision::full) return false;
    if (kernel.starts_with("simd_decode_")) return rows_of_a_key_head(p) <= 16;
  }
  return true;
}

/// Whether a kernel must accept the problem on a processor of these flags; nothing of kernels that depend on a
/// library or a device.
template <class Problem>
std::optional<bool> must_accept(std::string_view kernel, const Problem& p,
                                const ProcessorFlags& flags = processor_flags()) {
  if (kernel == "kokkos" || kernel == "reference" || kernel == "separate") return true;
  const auto isa = isa_of(kernel);
  const auto needed = isa ? flags_needed(*isa) : std::nullopt;
  if (!needed) return std::nullopt;
  return std::includes(flags.begin(), flags.end(), needed->begin(), needed->end()) &&
         operands_allow(kernel, *isa, p);
}

/// How often each kernel of the tested lists ran in this program, by its name; 0 if it refused everything.
inline std::map<std::string, int>& kernel_runs() {
  static std::map<std::string, int> runs;
  return runs;
}

}  // namespace kformer::Testing
