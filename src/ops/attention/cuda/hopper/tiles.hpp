// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/hopper/arguments.hpp"
#include "ops/attention/cuda/tiles.hpp"
#include "ops/common/cuda/hopper_instructions.hpp"

/// \file
/// Tiles of attention in shared memory as copies of tiles write them and products of warpgroups read them:
/// panels of 64 features, rows of 128 bytes under the 128-byte swizzle; where 64 do not divide the features,
/// panels of 32, rows of 64 bytes under the 64-byte swizzle.

namespace kformer::Impl::cuda::hopper {

/// Address bits of the swizzle: tiles begin at multiples of this.
inline constexpr int tile_alignment = 1024;

template <int rows, int features>
struct PanelTile {
  static constexpr int panel_features = features % 64 == 0 ? 64 : 32, panels = features / panel_features;
  static constexpr int row_bytes = 2 * panel_features, eight_rows = 8 * row_bytes;
  static constexpr int panel_bytes = rows * row_bytes, bytes = panels * panel_bytes;
  static_assert(features % panel_features == 0 && panel_bytes % tile_alignment == 0);

  SharedAddress begin;

  /// For its copies.
  template <Half type>
  static TensorMap map(TensorShape shape) {
    shape.box[0] = panel_features, shape.box[1] = rows;
    shape.box[2] = shape.box[3] = 1;
    return make_tensor_map(type, shape);
  }

  /// Rows from `row` on (a multiple of 8) and 16 features from 16 · `step` on, k of a product: rows are
  /// `row_bytes` apart, and under the swizzle the leading offset is not used (PTX ISA, "leading dimension byte
  /// offset" and "stride dimension byte offset", K-major).
  KFORMER_DEVICE std::uint64_t features_of_rows(int row, int step) const {
    constexpr int steps = panel_features / 16;
    const int at = step / steps * panel_bytes + row * row_bytes + step % steps * 32;
    return matrix_descriptor(begin + static_cast<SharedAddress>(at), 16, eight_rows, row_bytes);
  }
  /// 16 rows from 16 · `step` on, k of a product, and all features: the next features are one panel further
  /// (same tables, MN-major).
  KFORMER_DEVICE std::uint64_t rows_of_features(int step) const {
    return matrix_descriptor(begin + static_cast<SharedAddress>(step * 16 * row_bytes), panel_bytes, eight_rows,
                             row_bytes);
  }

  /// Begins to copy rows from `token` on; the barrier expects `bytes`.
  KFORMER_DEVICE void copy(const TensorMap& map, SharedAddress barrier, int token, int head, int batch) const {
    KFORMER_DEVICE_UNROLL
    for (int panel = 0; panel < panels; ++panel)
      copy_tile(begin + static_cast<SharedAddress>(panel * panel_bytes), map, barrier, panel * panel_features,
                token, head, batch);
  }

  /// Whether one of its numbers is infinite or NaN; asked by each thread of a warpgroup for its part.
  template <Half type>
  KFORMER_DEVICE bool not_finite(int thread) const {
    constexpr int threads = warpgroup_threads;
    // All loads are independent: a chain of them would take longer than the products of the tile.
    bool found = false;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < bytes / 16; i += threads) {
      const auto chunk = load_shared<Chunk>(begin + static_cast<SharedAddress>(16 * (i + thread)));
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < 4; ++j) found |= some_not_finite<type>(chunk.word[j]);
    }
    return found;
  }
};

/// Tiles of keys or values on their way from the thread that copies them to the warps that multiply them.
template <class Tile_, int stages>
struct Ring {
  using Tile = Tile_;
  static constexpr int bytes = stages * Tile::bytes, barrier_bytes = 2 * 8 * stages;
  static constexpr int period = 2 * stages;  ///< i and i + period are the same to it
  SharedAddress tiles, barriers;

  KFORMER_DEVICE Tile tile(int i) const {
    return {tiles + static_cast<SharedAddress>(i % stages * Tile::bytes)};
  }
  KFORMER_DEVICE SharedAddress full(int i) const {
    return barriers + static_cast<SharedAddress>(i % stages * 8);
  }
  KFORMER_DEVICE SharedAddress empty(int i) const { return full(i) + 8 * stages; }

  /// \param fillers  threads that say that they have filled a stage, besides the copies
  KFORMER_DEVICE void init(int consumer_warps, int fillers) const {
    for (int i = 0; i < stages; ++i) {
      init_barrier(full(i), fillers);
      init_barrier(empty(i), consumer_warps);
    }
  }
  /// By one thread, for i = 0, 1, …
  KFORMER_DEVICE void fill(int i, const TensorMap& map, int token, int head, int batch) const {
    wait_empty(i);
    arrive_and_expect(full(i), Tile::bytes);
    tile(i).copy(map, full(i), token, head, batch);
  }
  KFORMER_DEVICE void wait_empty(int i) const { wait_phase(empty(i), i / stages % 2 ^ 1); }
  /// By all threads of each warp, which go on together.
  KFORMER_DEVICE void wait(int i) const {
    wait_phase(full(i), i / stages % 2);
    warp_barrier();
  }
  /// By all threads of each warp when they are done with the tile.
  KFORMER_DEVICE void release(int i) const {
    warp_barrier();
    if (thread_index() % 32 == 0) arrive(empty(i));
  }
};

/// `f.operator()<half, features>()` for one of the supported numbers of features.
template <int... supported, class F>
void with_tiles(FeatureList<supported...>, Half type, int features, F f) {
  with_half(type, [&]<Half half>() {
    const auto call_if_equal = [&]<int candidate>() {
      if (features == candidate) f.template operator()<half, candidate>();
    };
    (call_if_equal.template operator()<supported>(), ...);
  });
}

/// The place of a thread in a block whose first warpgroup copies tiles and whose others have 64 rows each. Functions, since a
/// kernel has no registers left for what the number of the thread gives.
struct Place {
  KFORMER_DEVICE static int group() { return thread_index() / warpgroup_threads - 1; }
  KFORMER_DEVICE static int thread() { return thread_index() % warpgroup_threads; }
  KFORMER_DEVICE static int lane() { return thread_index() % 32; }
  /// The first of its two rows, of a block whose first row is `first`; the other is 8 further.
  KFORMER_DEVICE static int row_from(int first) {
    return first + 64 * group() + thread() / 32 * 16 + lane() / 4;
  }

  /// For the functions of exact rows, to which the warps of a block come by their number: the tile and the number of its rows
  /// from which the warps of this warpgroup take its own 64.
  static constexpr int warps = warpgroup_threads / 32;
  KFORMER_DEVICE static int exact_rows() { return warps * (group() + 1) + 64; }
  KFORMER_DEVICE static QueryTile exact_tile(QueryTile tile) {
    tile.first += 64 * group() - warps * (group() + 1);
    return tile;
  }
};

/// The number of the tile that a block of a grid computes in a round. Tiles are numbered from the longest to the
/// shortest, and every other round goes backwards, so that blocks have nearly the same to do. Increases with the
/// round.
KFORMER_DEVICE int tile_of_round(int round, int block, int blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

/// Scores as factors of the next product.
template <Half type, int columns>
KFORMER_DEVICE void pack_factor(std::uint32_t (&to)[columns / 2][4], const float (&from)[columns][4]) {
  KFORMER_DEVICE_UNROLL
  for (int k = 0; k < columns / 2; ++k) {
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i)
      to[k][i] = pack<type>(from[2 * k + i / 2][i % 2 * 2], from[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}

/// Warpgroups that begin their products one after the other, so that one of them multiplies while others do something else.
template <int warpgroups>
struct Turns {
  int first_barrier, mine;  ///< each has a barrier; `mine` is its number

  /// Before the first turn of the first.
  KFORMER_DEVICE void begin() const {
    if (mine == warpgroups - 1) arrive_at_barrier(first_barrier, 2 * warpgroup_threads);
  }
  KFORMER_DEVICE void wait() const { wait_at_barrier(first_barrier + mine, 2 * warpgroup_threads); }
  /// \param last  after this, nobody waits for the turn of the last
  KFORMER_DEVICE void pass(bool last) const {
    if (last && mine == warpgroups - 1) return;
    arrive_at_barrier(first_barrier + (mine + 1) % warpgroups, 2 * warpgroup_threads);
  }
};

}  // namespace kformer::Impl::cuda::hopper
