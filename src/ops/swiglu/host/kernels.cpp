// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/swiglu/host/silu.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr SwigluKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  return {swiglu_forward<T>, swiglu_backward<T>};
}
}  // namespace

template <Isa isa>
const SwigluKernels& swiglu_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr SwigluKernels all[] = {kernels_for<float>(), kernels_for<Bf16>(), kernels_for<F16>(),
                                          kernels_for<double>()};
  return all[static_cast<int>(storage)];
}

template const SwigluKernels& swiglu_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
