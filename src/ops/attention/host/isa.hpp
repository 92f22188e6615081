// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/arguments.hpp"
#include "ops/common/simd_entries.hpp"

/// \file
/// The instruction sets of attention. With AVX512_BF16, P and dS are rounded to bf16 as tensor cores take them;
/// it takes bf16 alone.

namespace kformer::Impl::host {

template <Isa isa>
inline constexpr const char* decode_entry = isa == Isa::avx512_bf16 ? "simd_decode_avx512_bf16"
                                            : isa == Isa::avx512    ? "simd_decode_avx512"
                                            : isa == Isa::avx2      ? "simd_decode_avx2"
                                                                    : "simd_decode_generic";

template <Isa isa>
const AttentionKernels& kernels_of(DType storage) {
  return attention_kernels<built<isa>>(storage);
}

/// Empty if this processor and instruction set take the problem's storage type and precision, else a sentence.
template <Isa isa, class Problem>
std::string attention_refusal(const Problem& p) {
  if (isa == Isa::avx512_bf16 && p.options.compute == Precision::full)
    return "it rounds attention weights to bf16, but compute = full was requested";
  return refusal<isa>(p.q.dtype);
}

}  // namespace kformer::Impl::host
