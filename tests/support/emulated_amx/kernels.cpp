// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "support/emulated_amx/kernels.hpp"

#include "ops/linear/host/amx/product.hpp"
#include "support/emulated_amx/tiles.hpp"

namespace kformer::Testing::emulated_amx {

template <kformer::Impl::host::Isa isa>
const kformer::Impl::host::LinearKernels& linear_kernels() {
  using namespace kformer::Impl::simd::KFORMER_ISA;
  static constexpr kformer::Impl::host::LinearKernels bf16 = amx_kernels<EmulatedTiles>();
  return bf16;
}

template const kformer::Impl::host::LinearKernels& linear_kernels<kformer::Impl::host::Isa::KFORMER_ISA>();

}  // namespace kformer::Testing::emulated_amx
