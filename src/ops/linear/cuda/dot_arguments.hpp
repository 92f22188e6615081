// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/launch.hpp"
#include "ops/common/cuda/vectors.hpp"

/// \file
/// The linear map of few rows as the CUDA kernel sees it. Free of Kokkos.

namespace kformer::Impl::cuda {

/// Rows of x that share the weights that are read.
inline constexpr int linear_dot_rows = 4;
/// Rows of W that share a block of threads.
inline constexpr int linear_dot_cols = 4, linear_dot_threads = 128;

/// y = scale · x Wᵀ + addend. Rows of x and W are whole chunks of 16 bytes.
struct LinearDotArguments {
  host::InputRows x, weight;
  host::InputRows addend;  ///< without data where there is none; of stride 0 it is a bias
  host::OutputRows y;
  std::int64_t rows, in, out;
  float scale;
};

/// Float, bf16 and f16.
/// \throws Error if CUDA refuses the launch
void linear_dots(Stream stream, DType type, const LinearDotArguments& a);

}  // namespace kformer::Impl::cuda
