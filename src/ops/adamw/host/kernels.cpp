// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/adamw/host/coded.hpp"
#include "ops/adamw/host/step.hpp"

namespace kformer::Impl::host {

template <Isa isa>
const AdamWKernels& adamw_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr auto all = by_storage([]<class T>() {
    if constexpr (sizeof(T) == 8)
      return AdamWKernels{adamw_step<T>, nullptr, sum_of_squares<T>};
    else
      return AdamWKernels{adamw_step<T>, adamw_coded_step<T>, sum_of_squares<float>};
  });
  return all.of[static_cast<int>(storage)];
}

template const AdamWKernels& adamw_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
