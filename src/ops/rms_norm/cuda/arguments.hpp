// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/launch.hpp"
#include "ops/common/cuda/vectors.hpp"
#include "ops/rms_norm/host/arguments.hpp"

/// \file
/// RMSNorm as the CUDA kernels see it, and the layout of a row in the registers of its threads. Free of Kokkos.

namespace kformer::Impl::cuda {

using host::RmsNormBackwardArguments;
using host::RmsNormForwardArguments;

/// A row in the registers of `warps` warps, `chunks` chunks of 16 bytes per thread. Several rows share a block
/// where each has one warp.
template <int warps_, int rows_, int chunks_>
struct RowShape {
  static constexpr int warps = warps_, rows = rows_, chunks = chunks_;
  static constexpr int threads = 32 * warps * rows;
  static constexpr int most_chunks = 32 * warps * chunks;
  static_assert(warps == 1 || rows == 1);

  /// Which of the block's rows this thread has a part of.
  KFORMER_DEVICE static int row() { return thread_index() / (32 * warps); }
  /// Which chunk of the row its j-th is; neighbouring threads have neighbouring chunks.
  KFORMER_DEVICE static int chunk(int j) { return thread_index() % (32 * warps) + j * 32 * warps; }
};

/// Short rows have a warp, so that their sums need no barrier; long ones a block with two to four chunks in
/// flight per thread and array.
using ShortRow = RowShape<1, 8, 4>;
using MiddleRow = RowShape<8, 1, 2>;
using LongRow = RowShape<16, 1, 4>;
inline constexpr std::int64_t most_row_bytes = 16 * LongRow::most_chunks;

/// `f.operator()<shape>()` for rows of `chunks` chunks.
template <class F>
void with_row_shape(std::int64_t chunks, F f) {
  if (chunks <= ShortRow::most_chunks)
    f.template operator()<ShortRow>();
  else if (chunks <= MiddleRow::most_chunks)
    f.template operator()<MiddleRow>();
  else
    f.template operator()<LongRow>();
}

/// \throws std::runtime_error if CUDA refuses the launch
void rms_norm_forward(Stream stream, DType type, const RmsNormForwardArguments& a, std::int64_t rows);
void rms_norm_backward(Stream stream, DType type, const RmsNormBackwardArguments& a);

}  // namespace kformer::Impl::cuda
