// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/tiles.hpp"
#include "ops/common/cuda/split_floats.hpp"

/// \file
/// Products of tiles of floats in shared memory, in both directions of attention. The warp that multiplies a
/// number splits it, in registers.

namespace kformer::Impl::cuda {

/// A warp has `row_tiles` times 16 rows, and meets `partners` rows of the other tile; both have `features` numbers.
template <int features, int row_tiles, int partners>
struct FloatProducts {
  using Tile = TileOf<float, features>;
  using Scores = float[row_tiles][partners / 8][4];
  using Sums = float[row_tiles][features / 8][4];
  /// Columns of 8 features, and of 8 partners, whose products are under way together: none waits for the one before.
  static constexpr int under_way = 4 / row_tiles, columns = partners / 8 < under_way ? partners / 8 : under_way;

  static_assert(columns % 2 == 0 && features % 32 == 0);

  /// The place of chunk 2 · pair + half. Swizzling stays within eight chunks: others differ by a constant, which
  /// spares registers.
  KFORMER_DEVICE static SharedAddress place(int row, int pair, int half) {
    return static_cast<SharedAddress>(pair / 4 * 128) + Tile::at(row, pair % 4 * 2 + half);
  }

  /// result = rows · partnersᵀ, with the rows from `first_row` of their tile on and `present` of the features.
  KFORMER_DEVICE static void multiply(Scores& result, SharedAddress rows, int first_row, SharedAddress partner,
                                      int present, int of_lane) {
    clear(result);
    const int lane = opaque(of_lane);  // what follows from it is not kept in registers meanwhile
    KFORMER_DEVICE_NO_UNROLL
    for (int k = 0; 8 * k < present; ++k) {
      SplitRows left[row_tiles];
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        std::uint32_t x[4];
        load_matrices(x, rows + place(first_row + 16 * m + lane % 16, k, lane / 16));
        KFORMER_DEVICE_UNROLL
        for (int i = 0; i < 4; ++i) left[m].put(i, bits_as_float(x[i]));
      }
      KFORMER_DEVICE_UNROLL
      for (int first = 0; first < partners / 8; first += columns) {
        SplitColumns right[columns];
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < columns; n += 2) {
          std::uint32_t y[4];
          load_matrices(y, partner + place(8 * (first + n) + lane % 8 + lane / 16 * 8, k, lane / 8 % 2));
          KFORMER_DEVICE_UNROLL
          for (int i = 0; i < 4; ++i) right[n + i / 2].put(i % 2, bits_as_float(y[i]));
        }
        add_split_products(result, first, left, right);
      }
    }
  }

  /// sum += factor · partners. The factors of two partners next to each other are in one thread, which has them as columns
  /// lane % 4 and lane % 4 + 4 of the left factor: the same partners are these rows of the right one.
  KFORMER_DEVICE static void add(Sums& sum, const Scores& factor, SharedAddress partner, int present,
                                 int of_lane) {
    const int lane = opaque(of_lane);
    SplitRows left[partners / 8][row_tiles];
    KFORMER_DEVICE_UNROLL
    for (int k = 0; k < partners / 8; ++k) {
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        const auto& x = factor[m][k];
        left[k][m].put(0, x[0]), left[k][m].put(1, x[2]), left[k][m].put(2, x[1]), left[k][m].put(3, x[3]);
      }
    }
    KFORMER_DEVICE_UNROLL
    for (int first = 0; first < features / 8; first += under_way) {
      if (8 * first >= present) continue;
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < partners / 8; ++k) {
        SplitColumns right[under_way];
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < under_way; ++n) {
          KFORMER_DEVICE_UNROLL
          for (int i = 0; i < 2; ++i) {
            const SharedAddress at = partner + place(8 * k + 2 * (lane % 4) + i, first + n, lane / 16);
            right[n].put(i, load_shared<float>(at + 4 * (lane / 4 % 4)));
          }
        }
        add_split_products(sum, first, left[k], right);
      }
    }
  }
};

}  // namespace kformer::Impl::cuda
