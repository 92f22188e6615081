// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/linear/host/tile.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr LinearKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  return {panel_cols<T>, most_panels<T>, LinearTile<T>::scratch_bytes, linear_tile<T, T>,
          linear_tile<T, Arithmetic<T>>};
}
}  // namespace

template <Isa isa>
const LinearKernels& linear_kernels([[maybe_unused]] DType storage) {
  using namespace simd::KFORMER_ISA;
  if constexpr (isa == Isa::avx512_bf16) {
    static constexpr LinearKernels bf16 = kernels_for<Bf16>();
    return bf16;
  } else {
    static constexpr auto all = by_storage([]<class T>() { return kernels_for<T>(); });
    return all.of[static_cast<int>(storage)];
  }
}

template const LinearKernels& linear_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
