// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// \file
/// Matrices as SIMD kernels see them: rows of neighbouring elements, strides in elements. Free of Kokkos.

namespace kformer::Impl::host {

struct InputRows {
  const void* data;
  std::int64_t stride;
};

struct OutputRows {
  void* data;
  std::int64_t stride;
  bool streams;  ///< written by non-temporal stores, where a row is aligned
};

/// A part of a matrix.
struct Block {
  std::int64_t first_row, end_row, first_column, columns;
};

}  // namespace kformer::Impl::host
