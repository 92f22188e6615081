// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/scalar.hpp"
#include "ops/attention/host/arguments.hpp"

/// \file
/// The instruction sets that the SIMD kernels are compiled for. `kernels.cpp` is compiled once for each.

namespace kformer::Impl::host {

enum class Isa { avx512, avx2, generic };

#if defined(__x86_64__)
const Kernels& kernels_avx512(DType storage);
const Kernels& kernels_avx2(DType storage);
#endif
const Kernels& kernels_generic(DType storage);

template <Isa isa>
inline constexpr const char* isa_entry = isa == Isa::avx512 ? "simd_avx512"
                                         : isa == Isa::avx2 ? "simd_avx2"
                                                            : "simd_generic";

template <Isa isa>
inline constexpr const char* decode_entry = isa == Isa::avx512 ? "simd_decode_avx512"
                                            : isa == Isa::avx2 ? "simd_decode_avx2"
                                                               : "simd_decode_generic";

template <Isa isa>
const Kernels& kernels_of(DType storage) {
#if defined(__x86_64__)
  if constexpr (isa == Isa::avx512) return kernels_avx512(storage);
  if constexpr (isa == Isa::avx2) return kernels_avx2(storage);
#endif
  return kernels_generic(storage);
}

/// Empty if this processor has the instruction set, else a sentence.
template <Isa isa>
const char* lacks() {
#if defined(__x86_64__)
  if constexpr (isa == Isa::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? ""
               : "this processor has no AVX-512 (F, BW, DQ, VL)";
  if constexpr (isa == Isa::avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")
               ? ""
               : "this processor has no AVX2 with FMA and F16C";
#else
  if constexpr (isa != Isa::generic) return "this is not an x86 processor";
#endif
  return "";
}

}  // namespace kformer::Impl::host
