// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/attention/host/backward.hpp"
#include "ops/attention/host/decode.hpp"
#include "ops/attention/host/forward.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr AttentionKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  using C = Arithmetic<T>;
  return {panel_lanes<C>,
          attention_forward_rows<T>,
          ForwardTile<T>::scratch_bytes,
          attention_forward<T>,
          decode_rows,
          decode_part,
          DecodeTile<T>::scratch_bytes,
          attention_decode<T>,
          attention_combine<T>,
          backward_rows<C>,
          backward_keys,
          attention_delta<T>,
          BackwardTile<T>::scratch_bytes,
          attention_backward<T>};
}
}  // namespace

template <Isa isa>
const AttentionKernels& attention_kernels([[maybe_unused]] DType storage) {
  using namespace simd::KFORMER_ISA;
  if constexpr (isa == Isa::avx512_bf16) {
    static constexpr AttentionKernels bf16 = kernels_for<Bf16>();
    return bf16;
  } else {
    static constexpr auto all = by_storage([]<class T>() { return kernels_for<T>(); });
    return all.of[static_cast<int>(storage)];
  }
}

template const AttentionKernels& attention_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
