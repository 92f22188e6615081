// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/rms_norm/host/backward.hpp"
#include "ops/rms_norm/host/forward.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr RmsNormKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  return {rms_norm_forward<T>, rms_norm_backward<T>, rms_norm_backward_weight<Arithmetic<T>>};
}
}  // namespace

template <Isa isa>
const RmsNormKernels& rms_norm_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr RmsNormKernels all[] = {kernels_for<float>(), kernels_for<Bf16>(), kernels_for<F16>(),
                                           kernels_for<double>()};
  return all[static_cast<int>(storage)];
}

template const RmsNormKernels& rms_norm_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
