// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/isa.hpp"
#include "ops/common/simd/rows.hpp"

/// \file
/// RMSNorm as the host's SIMD kernels see it. Free of Kokkos.

namespace kformer::Impl::host {

/// Row r is head r % heads of token r / heads. The stride of an operand lies between its tokens, that here
/// between the heads of a token. A matrix has one head. Not for fused forms.
struct HeadStrides {
  std::int64_t heads = 1, x = 0, y = 0, dy = 0, dx = 0;

  std::int64_t token(std::int64_t row) const { return heads == 1 ? row : row / heads; }
  std::int64_t head(std::int64_t row) const { return heads == 1 ? 0 : row % heads; }
};

struct RmsNormForwardArguments {
  InputRows x, residual;  // residual without data in the unfused form
  const void* weight;
  OutputRows sum, y;
  void* rstd;  // in the type of arithmetic
  std::int64_t hidden;
  double eps;
  HeadStrides strides{};
};

/// Statistics and sums are in the type of arithmetic.
struct RmsNormBackwardArguments {
  InputRows x;
  const void *weight, *rstd;
  InputRows dy, dsum;  // dsum without data in the unfused form
  OutputRows dx;
  void *partial, *dweight;  // (blocks, hidden), dense; (hidden)
  std::int64_t rows, hidden, rows_per_block, blocks;
  HeadStrides strides{};
};

/// The kernels of one instruction set and storage type.
struct RmsNormKernels {
  void (*forward)(const RmsNormForwardArguments&, std::int64_t first_row, std::int64_t end);
  void (*backward)(const RmsNormBackwardArguments&, std::int64_t block);
  void (*backward_weight)(const RmsNormBackwardArguments&, std::int64_t first_column, std::int64_t end);
};

template <Isa isa>
const RmsNormKernels& rms_norm_kernels(DType storage);

}  // namespace kformer::Impl::host
