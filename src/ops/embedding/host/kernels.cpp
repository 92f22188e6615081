// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/embedding/host/gather.hpp"

namespace kformer::Impl::host {

template <Isa isa>
const EmbeddingKernels& embedding_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr auto all =
      by_storage([]<class T>() { return EmbeddingKernels{embedding_forward<T>, embedding_backward<T>}; });
  return all.of[static_cast<int>(storage)];
}

template const EmbeddingKernels& embedding_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
