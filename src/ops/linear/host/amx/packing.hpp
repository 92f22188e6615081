// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/packing.hpp"

/// \file
/// Factors of bf16 as tile registers take them: 16 × 16 pairs of neighbours along the summed index, with
/// zeros for what a matrix does not have. A tile of the left factor has an index in each row, one of the
/// right factor in each column.

namespace kformer::Impl::simd::KFORMER_ISA {

inline constexpr int tile_side = 16;  ///< rows of a tile, and pairs or floats in one of its rows
inline constexpr int tile_size = tile_side * tile_side;
inline constexpr int tile_depth = 2 * tile_side;  ///< numbers along the summed index

constexpr int tiles_of(int indices) { return (indices + tile_side - 1) / tile_side; }
constexpr int tile_steps(int count) { return (count + tile_depth - 1) / tile_depth; }

/// A square of pairs, as bits that can be moved like floats.
using PairSquare = Vector<float>[width<float>];

/// The first `count` numbers of a vector of `Bits`, and zeros.
template <class Bits>
KFORMER_SIMD_INLINE Bits load_numbers(const Bf16* from, std::int64_t count) {
  constexpr int all = sizeof(Bits) / sizeof(Bf16);
  Bits bits{};
  if (count >= all)
    std::memcpy(&bits, from, sizeof(bits));
  else if (count > 0)
    std::memcpy(&bits, from, static_cast<std::size_t>(count) * sizeof(Bf16));
  return bits;
}

/// Data that are contiguous along the summed index: a vector has the pairs of one index.
KFORMER_SIMD_INLINE void load_along_sum(const Bf16* from, std::int64_t line, std::int64_t indices,
                                        std::int64_t count, PairSquare& to) {
  KFORMER_SIMD_UNROLL
  for (int i = 0; i < width<float>; ++i)
    to[i] = load_numbers<Vector<float>>(from + i * line, i < indices ? count : 0);
}

/// Data that are contiguous along the other index: a vector has one pair of every index, the first of them in
/// its lower half.
KFORMER_SIMD_INLINE void load_across_sum(const Bf16* from, std::int64_t line, std::int64_t indices,
                                         std::int64_t count, PairSquare& to) {
  const auto numbers = [&](int k) __attribute__((always_inline)) {
    return as_bits<Word>(widened(load_numbers<HalfWord>(from + k * line, k < count ? indices : 0)));
  };
  KFORMER_SIMD_UNROLL
  for (int i = 0; i < width<float>; ++i)
    to[i] = as_bits<Vector<float>>(numbers(2 * i) >> 16 | numbers(2 * i + 1));
}

enum class Side { left, right };

/// Packs `indices` × `count` numbers from an index and summed index on into tiles; those of the same indices
/// are neighbours.
template <Side side>
void pack_tiles(const ProductFactor& factor, std::int64_t index, std::int64_t inner, int indices, int count,
                float* to) {
  constexpr int W = width<float>;
  static_assert(tile_side % W == 0);
  const bool along = factor.inner_stride == 1;
  const Bf16* from =
      static_cast<const Bf16*>(factor.data) + index * factor.index_stride + inner * factor.inner_stride;
  const int all_indices = tiles_of(indices) * tile_side, steps = tile_steps(count), pairs = steps * tile_side;
  const auto pack_square = [&](int i, int pair) __attribute__((always_inline)) {
    float* tile = to + (i / tile_side * steps + pair / tile_side) * tile_size;
    const int row = side == Side::left ? i : pair, column = side == Side::left ? pair : i;
    float* square = tile + row % tile_side * tile_side + column % tile_side;
    const Bf16* here = from + i * factor.index_stride + 2 * pair * factor.inner_stride;
    PairSquare x;
    if (along) {
      load_along_sum(here, factor.index_stride, indices - i, count - 2 * pair, x);
      store_square<side == Side::right, float>(x, W, square, tile_side);
    } else {
      load_across_sum(here, factor.inner_stride, indices - i, count - 2 * pair, x);
      store_square<side == Side::left, float>(x, W, square, tile_side);
    }
  };
  // In the order of memory.
  if (along) {
    for (int i = 0; i < all_indices; i += W)
      for (int pair = 0; pair < pairs; pair += W) pack_square(i, pair);
  } else {
    for (int pair = 0; pair < pairs; pair += W)
      for (int i = 0; i < all_indices; i += W) pack_square(i, pair);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
