// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/tile.hpp"
#include "ops/quantized/host/codes.hpp"

/// \file
/// Tiles of few rows by weights as numbers: every block is read and turned into numbers once for the rows that
/// share a pass, and memory bandwidth limits the speed.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Rows that share a pass over the weights.
inline constexpr int pass_rows = 4;

/// Rows of x as floats, zeros up to whole units.
template <class T>
void load_inputs(const ProductArguments& p, const ProductTile& tile, float* to, std::int64_t ld) {
  for (int r = 0; r < tile.rows; ++r) {
    const T* from = static_cast<const T*>(p.left.data) + (tile.row + r) * p.left.index_stride;
    float* row = to + r * ld;
    std::int64_t i = 0;
    for (; i + width<float> <= p.inner; i += width<float>) store(row + i, load_stored(from + i));
    if (i < p.inner) store(row + i, load_part(from + i, static_cast<int>(p.inner - i)));
    for (i += i < p.inner ? width<float> : 0; i < ld; i += width<float>) store(row + i, Vector<float>{});
  }
}

/// `to[r·ld] = Σ row r of x · the row of weights`, `x_ld` a multiple of the unit.
template <QuantizedFormat kind, int rows>
KFORMER_SIMD_INLINE void dot_weights(const MatrixNumbers& matrix, const std::uint8_t* weights, const float* x,
                                     std::int64_t x_ld, float* to, std::int64_t ld) {
  constexpr int chains = unit_vectors < 2 ? unit_vectors : 2;
  Vector<float> sum[rows][chains] = {};
  std::int64_t left = x_ld / unit_weights;
  for (const std::uint8_t* block = weights; left > 0;
       block += Blocks<kind>::bytes, left -= Blocks<kind>::units) {
    __builtin_prefetch(block + bytes_ahead);
    const BlockNumbers numbers = numbers_of<kind>(matrix, block);
    for_each_unit<kind>(left, [&]<int unit>() __attribute__((always_inline)) {
      Vector<float> w[unit_vectors];
      weights_of<kind, unit>(block, numbers, w);
      KFORMER_SIMD_UNROLL
      for (int r = 0; r < rows; ++r) {
        KFORMER_SIMD_UNROLL
        for (int v = 0; v < unit_vectors; ++v)
          sum[r][v % chains] =
              fused_multiply_add<float>(w[v], load(x + r * x_ld + v * width<float>), sum[r][v % chains]);
      }
      x += unit_weights;
    });
  }
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) to[r * ld] = sum_of<float>(sum[r][0] + sum[r][1]);
}

template <class T, QuantizedFormat kind>
struct DotTile {
  const ProductArguments& p;
  const ProductTile& tile;
  float *x, *sums;
  std::int64_t x_ld = 0, sums_ld = 0;

  std::size_t lay_out(void* memory) {
    Scratch scratch(memory);
    x_ld = (p.inner + unit_weights - 1) / unit_weights * unit_weights;
    sums_ld = padded<float>(tile.cols);
    x = scratch.take<float>(tile.rows * x_ld);
    sums = scratch.take<float>(tile.rows * sums_ld);
    return scratch.bytes();
  }
};

template <class T, QuantizedFormat kind>
std::size_t dot_scratch(std::int64_t inner, int rows, int cols) {
  ProductArguments p{};
  p.inner = inner;
  const ProductTile tile{0, 0, rows, cols};
  DotTile<T, kind> all{p, tile, nullptr, nullptr};
  return all.lay_out(nullptr);
}

template <class T, QuantizedFormat kind>
void dot_tile(const ProductArguments& p, const ProductTile& tile, void* scratch) {
  DotTile<T, kind> all{p, tile, nullptr, nullptr};
  all.lay_out(scratch);
  load_inputs<T>(p, tile, all.x, all.x_ld);
  const auto* weights = static_cast<const std::uint8_t*>(p.right.data) + tile.col * p.right.index_stride;
  for (int row = 0; row < tile.rows; row += pass_rows)
    with_block<pass_rows>(tile.rows - row, [&]<int rows>() {
      for (int col = 0; col < tile.cols; ++col)
        dot_weights<kind, rows>(MatrixNumbers(p), weights + col * p.right.index_stride, all.x + row * all.x_ld,
                                all.x_ld, all.sums + row * all.sums_ld + col, all.sums_ld);
    });
  store_result<T>(p, tile, all.sums, all.sums_ld);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
