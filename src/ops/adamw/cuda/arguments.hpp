// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/host/arguments.hpp"
#include "ops/common/cuda/launch.hpp"
#include "ops/common/cuda/numbers.hpp"

/// \file
/// AdamW as the CUDA kernels see it: an argument of the launch. Free of Kokkos.

namespace kformer::Impl::cuda {

using host::AdamWItem;
using host::AdamWNumbers;
using host::clip_epsilon;

/// Elements of a piece, which one block takes.
inline constexpr int adamw_piece_elements = 8192;
inline constexpr int adamw_threads = 256;

/// Parameters cut into pieces; `first_piece` is that of each.
struct AdamWPieces {
  static constexpr int capacity = 32;
  int count;
  std::int64_t pieces;
  std::int64_t first_piece[capacity];
  AdamWItem items[capacity];
};

/// Elements [begin, end) of one parameter.
struct AdamWPiece {
  int item;
  std::int64_t begin, end;
};
KFORMER_DEVICE AdamWPiece piece_of(const AdamWPieces& all, int piece) {
  int low = 0, high = all.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (all.first_piece[middle] <= piece ? low : high) = middle;
  }
  const std::int64_t begin = (piece - all.first_piece[low]) * adamw_piece_elements, size = all.items[low].size;
  return {low, begin, begin + adamw_piece_elements < size ? begin + adamw_piece_elements : size};
}

/// The factor on gradients, as far as the host knows it, and the address of the norm.
struct AdamWScaling {
  const void* norm;  ///< null: none
  double scale, max_norm;

  /// Whether the norm is not finite: then the whole step is skipped.
  template <class C>
  KFORMER_DEVICE bool skips() const {
    if (!norm) return false;
    const C length = *static_cast<const C*>(norm);
    return !(length - length == 0);
  }
  template <class C>
  KFORMER_DEVICE double factor() const {
    if (max_norm == 0) return scale;
    const double length = static_cast<double>(*static_cast<const C*>(norm)) * scale + clip_epsilon;
    return length > max_norm ? scale * (max_norm / length) : scale;
  }
};

/// The step on weights of one type, whose states are stored in the type of arithmetic.
/// \throws std::runtime_error if CUDA refuses the launch
void adamw_step(Stream stream, DType type, const AdamWPieces& pieces, const AdamWNumbers& numbers,
                const AdamWScaling& scaling);
/// The step on weights of one type up to float, whose states have 8 bits.
/// \throws std::runtime_error if CUDA refuses the launch
void adamw_coded_step(Stream stream, DType type, const AdamWPieces& pieces, const AdamWNumbers& numbers,
                      const AdamWScaling& scaling);

/// The sum of squares of each piece of gradients, f32 or f64.
/// \throws std::runtime_error if CUDA refuses the launch
void gradient_squares(Stream stream, DType type, const AdamWPieces& pieces, double* sums);
/// The root of the sum of `count` sums.
/// \throws std::runtime_error if CUDA refuses the launch
void gradient_root(Stream stream, DType type, const double* sums, std::int64_t count, void* norm);

}  // namespace kformer::Impl::cuda
