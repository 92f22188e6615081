// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/rope/host/rotate.hpp"

namespace kformer::Impl::host {

template <Isa isa>
const RopeKernels& rope_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr auto all = by_storage(
      []<class T>() { return RopeKernels{rope_rotate<T, SplitPairs>, rope_rotate<T, NeighbourPairs>}; });
  return all.of[static_cast<int>(storage)];
}

template const RopeKernels& rope_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
