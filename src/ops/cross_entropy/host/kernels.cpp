// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/cross_entropy/host/backward.hpp"
#include "ops/cross_entropy/host/forward.hpp"

namespace kformer::Impl::host {

template <Isa isa>
const CrossEntropyKernels& cross_entropy_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr auto all = by_storage(
      []<class T>() { return CrossEntropyKernels{cross_entropy_forward<T>, cross_entropy_backward<T>}; });
  return all.of[static_cast<int>(storage)];
}

template const CrossEntropyKernels& cross_entropy_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
