// SPDX-License-Identifier: MIT
#pragma once

#include "ops/quantized/cuda/codes.hpp"

/// \file
/// Rows of W on their way through shared memory: a warp copies 16 bytes per lane, whatever the size of a
/// block is, and has the next two passes in flight while it works on one. Warps do not wait for each other.

namespace kformer::Impl::cuda {

template <QuantizedFormat format>
struct WeightStream {
  using Layout = BlockLayout<format>;
  static constexpr int stages = 3, pass_blocks = Layout::blocks_per_pass,
                       pass_bytes = pass_blocks * Layout::bytes;
  /// A row begins anywhere in its first 16 bytes, and words are read 4 bytes beyond their end.
  static constexpr int slot_bytes = (pass_bytes + 15 + 15) / 16 * 16 + 16;
  static constexpr int table_bytes = Layout::table ? Nf4Table::bytes : 0;
  static constexpr int warp_bytes = stages * dot_cols * slot_bytes + table_bytes;
  static constexpr int shared_bytes = dot_warps * warp_bytes;

  const QuantizedDotArguments& a;
  std::int64_t col;  ///< the first row of W
  SharedAddress shared;

  KFORMER_DEVICE WeightStream(const QuantizedDotArguments& arguments, std::int64_t first, int warp)
      : a(arguments), col(first), shared(shared_begin() + static_cast<SharedAddress>(warp * warp_bytes)) {}

  KFORMER_DEVICE SharedAddress table() const { return shared + stages * dot_cols * slot_bytes; }

  /// `f(first, blocks, at)` for the passes in order: which blocks, and where those of each row of W are. Rows
  /// behind the last one repeat it.
  template <class F>
  KFORMER_DEVICE void for_each_pass(F f) const {
    const std::int64_t passes = (a.row_blocks + pass_blocks - 1) / pass_blocks;
    KFORMER_DEVICE_UNROLL
    for (int pass = 0; pass + 1 < stages; ++pass) copy(pass, pass);
    int stage = 0;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      wait_copies<stages - 2>();
      warp_barrier();  // this pass is there, and nobody reads the one before it
      copy(pass + stages - 1, stage == 0 ? stages - 1 : stage - 1);
      const std::int64_t first = pass * pass_blocks;
      SharedAddress at[dot_cols];
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < dot_cols; ++c)
        at[c] = slot(stage, c) + static_cast<SharedAddress>(begin(pass, c) % 16);
      f(first, static_cast<int>(a.row_blocks - first < pass_blocks ? a.row_blocks - first : pass_blocks), at);
      stage = stage + 1 < stages ? stage + 1 : 0;
    }
    wait_copies<0>();
  }

 private:
  KFORMER_DEVICE SharedAddress slot(int stage, int c) const {
    return shared + static_cast<SharedAddress>((stage * dot_cols + c) * slot_bytes);
  }
  KFORMER_DEVICE std::int64_t row(int c) const { return col + c < a.out ? col + c : a.out - 1; }
  /// In bytes from the beginning of the matrix.
  KFORMER_DEVICE std::int64_t begin(std::int64_t pass, int c) const {
    return row(c) * a.row_bytes + pass * pass_bytes;
  }

  /// One group of copies, which is empty behind the last pass. Nothing behind the matrix is read.
  KFORMER_DEVICE void copy(std::int64_t pass, int stage) const {
    KFORMER_DEVICE_UNROLL
    for (int c = 0; c < dot_cols; ++c) {
      const std::int64_t row_end = (row(c) + 1) * a.row_bytes, from = begin(pass, c) / 16 * 16;
      const std::int64_t end = begin(pass + 1, c) < row_end ? begin(pass + 1, c) : row_end;
      for (std::int64_t at = from + 16 * (thread_index() % 32); at < end; at += 16 * 32) {
        const std::int64_t left = a.out * a.row_bytes - at;
        copy_async(slot(stage, c) + static_cast<SharedAddress>(at - from), a.weight + at,
                   static_cast<int>(left < 16 ? left : 16));
      }
    }
    commit_copies();
  }
};

/// Which part of y a warp has.
template <int rows_>
struct DotPlace {
  static constexpr int rows = rows_;
  int lane, warp;
  std::int64_t row, col;

  KFORMER_DEVICE explicit DotPlace(const QuantizedDotArguments& a)
      : lane(thread_index() % 32), warp(thread_index() / 32) {
    const int passes = rows == 1 ? 1 : a.row_passes();
    row = static_cast<std::int64_t>(block_index() % passes) * rows;
    col = (static_cast<std::int64_t>(block_index() / passes) * dot_warps + warp) * dot_cols;
  }

  /// Row r of a matrix with a row per row of x; the last one in place of those behind it.
  template <class T>
  KFORMER_DEVICE const T* row_of(const host::InputRows& x, const QuantizedDotArguments& a, int r) const {
    return static_cast<const T*>(x.data) + valid_row(a, r) * x.stride;
  }
  KFORMER_DEVICE std::int64_t valid_row(const QuantizedDotArguments& a, int r) const {
    return row + r < a.rows ? row + r : a.rows - 1;
  }

  /// `product`: the scaled one, of row r of x and row c of W.
  template <class T>
  KFORMER_DEVICE void store(const QuantizedDotArguments& a, int r, int c, float product) const {
    if (row + r >= a.rows || col + c >= a.out) return;
    const auto* residual = static_cast<const T*>(a.residual.data);
    if (residual) product = widened(residual[(row + r) * a.residual.stride + col + c]) + product;
    narrow(product, static_cast<T*>(a.y.data)[(row + r) * a.y.stride + col + c]);
  }
  /// Adds the sums of the lanes, and stores `scaled(r, all)` of each.
  template <class T, class Total, class Scaled>
  KFORMER_DEVICE void store_sums(const QuantizedDotArguments& a, const Total (&sum)[dot_cols][rows],
                                 Scaled scaled) const {
    KFORMER_DEVICE_UNROLL
    for (int c = 0; c < dot_cols; ++c) {
      KFORMER_DEVICE_UNROLL
      for (int r = 0; r < rows; ++r) {
        const Total all = over_warp(sum[c][r], Sum{});
        if (lane == 0) store<T>(a, r, c, scaled(r, all));
      }
    }
  }
};

/// How many blocks of threads all of y takes.
inline std::int64_t dot_blocks(std::int64_t rows, std::int64_t out) {
  constexpr int cols = dot_warps * dot_cols;
  return (rows + dot_rows - 1) / dot_rows * ((out + cols - 1) / cols);
}

}  // namespace kformer::Impl::cuda
