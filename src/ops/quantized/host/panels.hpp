// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/tile.hpp"
#include "ops/quantized/host/codes.hpp"

/// \file
/// Tiles of many rows: weights become numbers while they are packed into the panels of the plain product.

namespace kformer::Impl::simd::KFORMER_ISA {

/// A quantised right factor.
template <QuantizedFormat kind>
struct QuantizedRight {
  explicit QuantizedRight(const ProductArguments& p) : factor(p.right) {}

  /// Packs `cols` × `count` weights; `inner` is a multiple of the weights of a block.
  void pack(std::int64_t col, std::int64_t inner, int cols, int count, const auto& to) const {
    constexpr int W = width<float>, block_weights = Blocks<kind>::units * unit_weights;
    static_assert(product_depth % block_weights == 0);
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
            weights_of<kind, unit>(block, numbers_of<kind>(block), w);
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

  static constexpr std::int64_t blocks_of_32(std::int64_t weights) {
    return (weights + unit_weights - 1) / unit_weights;
  }

  const ProductFactor& factor;
};

template <class T, QuantizedFormat kind>
void panel_tile(const ProductArguments& p, const ProductTile& part, void* scratch) {
  LinearTile<T, QuantizedRight<kind>> tile{p, part};
  tile.lay_out(scratch);
  tile.sum_up();
  store_result<T>(p, part, tile.sums, tile.sums_stride);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
