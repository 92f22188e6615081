// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/scalar.hpp"
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

/// Empty if this processor has the instruction set and the instruction set takes the storage type, else a
/// sentence.
template <Isa isa>
std::string refusal(DType storage) {
  if (isa == Isa::avx512_bf16 && storage != DType::bf16)
    return std::string("operands are stored as ") + to_string(storage) + ", it takes bf16";
  return processor_refusal<isa>();
}

}  // namespace kformer::Impl::host
