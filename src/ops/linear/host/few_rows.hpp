// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/packing.hpp"

/// \file
/// Tiles of so few rows that packing would cost more than it saves: memory bandwidth limits them. Both factors
/// are read in place, along the summed index, and a block of rows and columns shares every load.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::ProductArguments;
using host::ProductTile;

/// The most rows that are faster without packing; measured.
inline constexpr int few_rows = 32;

inline constexpr int dot_rows = 4;
inline constexpr int dot_cols = vector_registers == 32 ? 4 : 2;

/// `to[r·ld + c] = Σ left row r · right row c`.
template <class T, int rows, int cols, class C = Arithmetic<T>>
void dot_block(const T* left, std::int64_t left_line, const T* right, std::int64_t right_line,
               std::int64_t inner, C* to, std::int64_t ld) {
  Vector<C> sum[rows][cols] = {};
  const auto add = [&](std::int64_t k, auto load) {
    decltype(load(right)) shared[cols];
    KFORMER_SIMD_UNROLL
    for (int c = 0; c < cols; ++c) {
      shared[c] = load(right + c * right_line + k);
      __builtin_prefetch(right + (c + cols) * right_line + k, 0, 2);  // for the next columns
    }
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < rows; ++i) {
      const auto row = load(left + i * left_line + k);
      KFORMER_SIMD_UNROLL
      for (int c = 0; c < cols; ++c) multiply_add(sum[i][c], row, shared[c]);
    }
  };
  constexpr int step = stored_width<T>;
  std::int64_t k = 0;
  for (; k + step <= inner; k += step)
    add(k, [](const T* from) __attribute__((always_inline)) { return load_operands(from); });
  if (k < inner)
    add(k, [count = inner - k](const T* from)
               __attribute__((always_inline)) { return load_operands(from, count); });
  KFORMER_SIMD_UNROLL
  for (int i = 0; i < rows; ++i) {
    KFORMER_SIMD_UNROLL
    for (int c = 0; c < cols; ++c) to[i * ld + c] = sum_of<C>(sum[i][c]);
  }
}

/// Calls `f` with the number of a block that has `count` or, if there are more, `most`.
template <int most, class F>
KFORMER_SIMD_INLINE void with_block(std::int64_t count, F f) {
  if constexpr (most == 1) {
    f.template operator()<1>();
  } else {
    if (count >= most)
      f.template operator()<most>();
    else
      with_block<most - 1>(count, f);
  }
}

/// The sums of a tile of `p`, whose factors are both contiguous along the summed index.
template <class T, class C = Arithmetic<T>>
void sum_few_rows(const ProductArguments& p, const ProductTile& tile, C* sums, std::int64_t ld) {
  const T* left = static_cast<const T*>(p.left.data) + tile.row * p.left.index_stride;
  const T* right = static_cast<const T*>(p.right.data) + tile.col * p.right.index_stride;
  for (int col = 0; col < tile.cols; col += dot_cols)
    for (int row = 0; row < tile.rows; row += dot_rows)
      with_block<dot_cols>(tile.cols - col, [&]<int cols>() {
        with_block<dot_rows>(tile.rows - row, [&]<int rows>() {
          dot_block<T, rows, cols>(left + row * p.left.index_stride, p.left.index_stride,
                                   right + col * p.right.index_stride, p.right.index_stride, p.inner,
                                   sums + row * ld + col, ld);
        });
      });
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
