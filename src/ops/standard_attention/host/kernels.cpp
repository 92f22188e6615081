// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/standard_attention/host/softmax.hpp"

namespace kformer::Impl::host {

template <Isa isa>
const StandardAttentionKernels& standard_attention_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr auto all = by_storage(
      []<class T>() { return StandardAttentionKernels{softmax<T>, score_gradient<T>, are_finite<T>}; });
  return all.of[static_cast<int>(storage)];
}

template const StandardAttentionKernels& standard_attention_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
