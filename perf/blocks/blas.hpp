// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "run.hpp"

/// \file
/// The BLAS that the library was built with, where everything is timed on a host: called as any program would:
/// once per product, with its own threads.

namespace kformer::perf {

#ifdef KFORMER_PERF_BLAS
inline constexpr bool has_blas = true;
#else
inline constexpr bool has_blas = false;  ///< then nothing else here is defined
#endif

/// A matrix in memory, row by row.
struct BlasFactor {
  const float* data;
  std::int64_t columns;
  bool transposed;  ///< whether its transpose is the factor
};

/// Whether it can run on `threads` threads.
bool blas_can_use(int threads);

/// Of a call that it can do in float.
struct BlasCall {
  static bool blas_can() { return blas_can_use(Space().concurrency()); }
};

/// `result = left · right + beta · result` on `threads` threads, with (rows, columns) the extents of `result`
/// and `inner` the length of the sums.
void blas_product(int threads, std::int64_t rows, std::int64_t columns, std::int64_t inner,
                  const BlasFactor& left, const BlasFactor& right, float beta, float* result);

}  // namespace kformer::perf
