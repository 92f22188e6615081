// SPDX-License-Identifier: MIT
#include "ops/linear/host/amx/kernels.hpp"

#include "ops/linear/host/amx/instructions.hpp"
#include "ops/linear/host/amx/product.hpp"

namespace kformer::Impl::host {

const LinearKernels& amx_linear_kernels() {
  using namespace simd::KFORMER_ISA;
  static constexpr LinearKernels bf16 = amx_kernels<TileRegisters>();
  return bf16;
}

}  // namespace kformer::Impl::host
