// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/cross_entropy/host/backward.hpp"
#include "ops/cross_entropy/host/forward.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr CrossEntropyKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  return {cross_entropy_forward<T>, cross_entropy_backward<T>};
}
}  // namespace

template <Isa isa>
const CrossEntropyKernels& cross_entropy_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr CrossEntropyKernels all[] = {kernels_for<float>(), kernels_for<Bf16>(), kernels_for<F16>(),
                                                kernels_for<double>()};
  return all[static_cast<int>(storage)];
}

template const CrossEntropyKernels& cross_entropy_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
