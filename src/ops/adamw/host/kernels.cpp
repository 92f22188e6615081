// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/adamw/host/coded.hpp"
#include "ops/adamw/host/step.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr AdamWKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  if constexpr (sizeof(T) == 8)
    return {adamw_step<T>, nullptr, sum_of_squares<T>};
  else
    return {adamw_step<T>, adamw_coded_step<T>, sum_of_squares<float>};
}
}  // namespace

template <Isa isa>
const AdamWKernels& adamw_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr AdamWKernels all[] = {kernels_for<float>(), kernels_for<Bf16>(), kernels_for<F16>(),
                                         kernels_for<double>()};
  return all[static_cast<int>(storage)];
}

template const AdamWKernels& adamw_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
