// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/rms_norm/host/backward.hpp"
#include "ops/rms_norm/host/forward.hpp"

namespace kformer::Impl::host {

template <Isa isa>
const RmsNormKernels& rms_norm_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr auto all = by_storage([]<class T>() {
    return RmsNormKernels{rms_norm_forward<T>, rms_norm_backward<T>, rms_norm_backward_weight<Arithmetic<T>>};
  });
  return all.of[static_cast<int>(storage)];
}

template const RmsNormKernels& rms_norm_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
