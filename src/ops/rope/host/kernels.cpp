// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/rope/host/rotate.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr RopeKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  return {rope_rotate<T, SplitPairs>, rope_rotate<T, NeighbourPairs>};
}
}  // namespace

template <Isa isa>
const RopeKernels& rope_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr RopeKernels all[] = {kernels_for<float>(), kernels_for<Bf16>(), kernels_for<F16>(),
                                        kernels_for<double>()};
  return all[static_cast<int>(storage)];
}

template const RopeKernels& rope_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
