// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/scalar.hpp"
#include "ops/attention/host/arguments.hpp"

/// \file
/// The instruction sets that the SIMD kernels are compiled for. `kernels.cpp` is compiled once for each.

namespace kformer::Impl::host {

/// AVX512_BF16 multiplies pairs of bf16 twice as fast as AVX-512 multiplies floats; P and dS are then rounded
/// to bf16, as tensor cores take them. It takes bf16 alone.
enum class Isa { avx512_bf16, avx512, avx2, generic };

#if defined(__x86_64__)
const Kernels& kernels_avx512_bf16(DType storage);
const Kernels& kernels_avx512(DType storage);
const Kernels& kernels_avx2(DType storage);
#endif
const Kernels& kernels_generic(DType storage);

template <Isa isa>
inline constexpr const char* isa_entry = isa == Isa::avx512_bf16 ? "simd_avx512_bf16"
                                         : isa == Isa::avx512    ? "simd_avx512"
                                         : isa == Isa::avx2      ? "simd_avx2"
                                                                 : "simd_generic";

template <Isa isa>
inline constexpr const char* decode_entry = isa == Isa::avx512_bf16 ? "simd_decode_avx512_bf16"
                                            : isa == Isa::avx512    ? "simd_decode_avx512"
                                            : isa == Isa::avx2      ? "simd_decode_avx2"
                                                                    : "simd_decode_generic";

template <Isa isa>
const Kernels& kernels_of(DType storage) {
#if defined(__x86_64__)
  if constexpr (isa == Isa::avx512_bf16) return kernels_avx512_bf16(storage);
  if constexpr (isa == Isa::avx512) return kernels_avx512(storage);
  if constexpr (isa == Isa::avx2) return kernels_avx2(storage);
#endif
  return kernels_generic(storage);
}

/// Empty if this processor has the instruction set and the instruction set takes the storage type, else a
/// sentence.
template <Isa isa>
std::string refusal(DType storage) {
  if (isa == Isa::avx512_bf16 && storage != DType::bf16)
    return std::string("operands are stored as ") + to_string(storage) + ", it takes bf16";
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == Isa::avx512_bf16 && !(avx512 && __builtin_cpu_supports("avx512bf16")))
    return "this processor has no AVX512_BF16";
  if (isa == Isa::avx512 && !avx512) return "this processor has no AVX-512 (F, BW, DQ, VL)";
  if (isa == Isa::avx2 &&
      !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")))
    return "this processor has no AVX2 with FMA and F16C";
#else
  if (isa != Isa::generic) return "this is not an x86 processor";
#endif
  return {};
}

}  // namespace kformer::Impl::host
