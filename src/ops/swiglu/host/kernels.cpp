// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/swiglu/host/silu.hpp"

namespace kformer::Impl::host {

template <Isa isa>
const SwigluKernels& swiglu_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr auto all =
      by_storage([]<class T>() { return SwigluKernels{swiglu_forward<T>, swiglu_backward<T>}; });
  return all.of[static_cast<int>(storage)];
}

template const SwigluKernels& swiglu_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
