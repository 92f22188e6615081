// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/tile.hpp"
#include "ops/quantized/host/codes.hpp"

/// \file
/// Tiles of many rows: weights become numbers while they are packed into the panels of the plain product.
/// Forward sums along the rows of weights, so that squares of vectors are turned; backward sums along their
/// columns, and vectors are stored as they are.

namespace kformer::Impl::simd::KFORMER_ISA {

constexpr std::int64_t blocks_of_32(std::int64_t weights) {
  return (weights + unit_weights - 1) / unit_weights;
}

/// A quantised right factor.
template <QuantizedFormat kind>
struct QuantizedRight {
  static constexpr int depth = 256, unit = 256;

  explicit QuantizedRight(const ProductArguments& p) : factor(p.right), matrix(p) {}

  /// Packs `cols` × `count` weights; `inner` is a multiple of the weights of a block.
  void pack(std::int64_t col, std::int64_t inner, int cols, int count, const auto& to) const {
    constexpr int W = width<float>, block_weights = Blocks<kind>::units * unit_weights;
    static_assert(unit % block_weights == 0);
    const auto* from = static_cast<const std::uint8_t*>(factor.data) + col * factor.index_stride +
                       inner / block_weights * Blocks<kind>::bytes;
    for (int i0 = 0; i0 < cols; i0 += W)
      for (int k = 0; k < count; k += block_weights)
        for_each_unit<kind>(blocks_of_32(count - k), [&]<int unit>() __attribute__((always_inline)) {
          Vector<float> x[unit_vectors][W];
          for (int i = 0; i < W; ++i) {
            // The last column replaces missing ones: their products are not stored.
            const int index = i0 + i < cols ? i0 + i : cols - 1;
            const std::uint8_t* block =
                from + index * factor.index_stride + k / block_weights * Blocks<kind>::bytes;
            Vector<float> w[unit_vectors];
            weights_of<kind, unit>(block, numbers_of<kind>(matrix, block), w);
            KFORMER_SIMD_UNROLL
            for (int v = 0; v < unit_vectors; ++v) x[v][i] = w[v];
          }
          KFORMER_SIMD_UNROLL
          for (int v = 0; v < unit_vectors; ++v) {
            const int first = k + unit * unit_weights + v * W;
            if (first < count)
              store_square<true>(x[v], count - first < W ? count - first : W, to.at(i0, first), to.ld);
          }
        });
  }

  const ProductFactor& factor;
  const MatrixNumbers matrix;
};

/// The same with the roles of its rows and columns exchanged: rows are the summed index.
template <QuantizedFormat kind>
struct QuantizedAcross {
  static constexpr int depth = StoredRight<float>::depth, unit = StoredRight<float>::unit;

  explicit QuantizedAcross(const ProductArguments& p) : factor(p.right), matrix(p) {}

  /// Packs `cols` × `count` weights; `col` is a multiple of a panel's columns, which are whole vectors.
  template <class To>
  void pack(std::int64_t col, std::int64_t inner, int cols, int count, const To& to) const {
    constexpr int block_weights = Blocks<kind>::units * unit_weights;
    const std::int64_t first_block = col / block_weights, end = col + cols;
    for (int k = 0; k < count; ++k) {
      const auto* row = static_cast<const std::uint8_t*>(factor.data) + (inner + k) * factor.inner_stride;
      for (std::int64_t b = first_block; b * block_weights < end; ++b) {
        const std::uint8_t* block = row + b * Blocks<kind>::bytes;
        const BlockNumbers numbers = numbers_of<kind>(matrix, block);
        // Of the tile: the first block may begin before it.
        const auto place = static_cast<int>(b * block_weights - col);
        for_each_unit<kind>(blocks_of_32(cols - place), [&]<int unit>() __attribute__((always_inline)) {
          store_unit<unit>(block, numbers, place + unit * unit_weights, cols, k, to);
        });
      }
    }
  }

  const ProductFactor& factor;
  const MatrixNumbers matrix;

 private:
  /// The vectors of a unit, which begins at column `first` of the tile, that are in the tile.
  template <int unit, class To>
  KFORMER_SIMD_INLINE static void store_unit(const std::uint8_t* block, const BlockNumbers& numbers, int first,
                                             int cols, int k, const To& to) {
    constexpr int W = width<float>;
    static_assert(To::ld % W == 0 && unit_weights % W == 0);
    if (first + unit_weights <= 0) return;
    Vector<float> w[unit_vectors];
    weights_of<kind, unit>(block, numbers, w);
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < unit_vectors; ++v) {
      const int index = first + v * W;
      if (index >= 0 && index < cols) store(to.at(index, k), w[v]);
    }
  }
};

template <class T, class Right>
void quantized_tile(const ProductArguments& p, const ProductTile& part, void* scratch) {
  LinearTile<T, Right> tile{p, part};
  tile.lay_out(scratch);
  finish_tile<T>(tile, p, part);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
