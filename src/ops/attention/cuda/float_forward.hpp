// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"
#include "ops/attention/cuda/float_products.hpp"
#include "ops/attention/cuda/forward_block.hpp"

/// \file
/// Attention forward of floats on tensor cores, by three products of TF32 for each: as `ForwardKernel`, a block has
/// the rows of one head's tile of queries, and keys pass through shared memory.

namespace kformer::Impl::cuda {

// Occupancy of FloatForwardKernel: registers or shared memory limit it to two or three blocks. A thread holds scores,
// results, and both parts of the factors under way. The warp that multiplies a number splits it: tiles with fewer queries
// per warp would split keys and values more often.
template <int features_>
struct FloatForwardTiles {
  static constexpr int features = features_;  ///< of q, k and v, padded
  static constexpr int warps = 4;
  static constexpr int row_tiles = features <= 64 ? 2 : 1;  ///< of 16 queries, per warp
  static constexpr int keys = 16;                           ///< per pass
  static constexpr int queries = 16 * warps * row_tiles;
};

template <class Tiles>
struct FloatForwardKernel {
  static constexpr int features = Tiles::features, warps = Tiles::warps, row_tiles = Tiles::row_tiles,
                       keys = Tiles::keys, queries = Tiles::queries;
  static constexpr int threads = 32 * warps, blocks_per_multiprocessor = 2;
  using Tile = TileOf<float, features>;
  static constexpr int query_bytes = queries * Tile::row_bytes, key_bytes = keys * Tile::row_bytes;
  static constexpr int shared_bytes = query_bytes + 2 * key_bytes;

  AttentionArgumentsOf<float> a;
  Sequences sequences;

  KFORMER_DEVICE void operator()() const {
    const int head = block_index() % a.q_heads;
    const QueryTile tile = find_tile<queries>(sequences, block_index() / a.q_heads);
    if (tile.q_len == 0) return;
    if (!Block(*this, tile, head).run()) attend_exactly<Floats, features>(a, tile, head, queries, warps);
  }

 private:
  using Products = FloatProducts<features, row_tiles, keys>;

  struct Block : ForwardBlock<Tiles, float> {
    using Base = ForwardBlock<Tiles, float>;
    using Base::first_row, Base::lane, Base::result, Base::shared_keys, Base::shared_queries,
        Base::shared_values, Base::softmax;
    using Scores = typename Base::Scores;

    KFORMER_DEVICE Block(const FloatForwardKernel& kernel, const QueryTile& of_tile, int of_head)
        : Base(kernel.a, of_tile, of_head, query_bytes) {}

    /// False if some result may be wrong. What tensor cores make of numbers that are not finite, or that cannot be
    /// split, is never finite, also where a query does not see them: 0 · NaN is not 0.
    KFORMER_DEVICE bool run() {
      this->copy_queries();
      this->pass_keys(
          [this](Scores& score) {
            Products::multiply(score, shared_queries, first_row(0), shared_keys, this->a.head_dim, lane);
          },
          [this](Scores& score, int key, bool hides) { return attend(score, key, hides); });
      bool doubtful = false;
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m)
        doubtful = doubtful || some_doubtful(result[m], 0) || some_doubtful(result[m], 1);
      if (any_of_block(doubtful)) return false;
      this->store(
          [](float* out, float x, float y) { store_words(out, Words<2>{float_as_bits(x), float_as_bits(y)}); });
      return true;
    }

    KFORMER_DEVICE bool attend(Scores& score, int key, bool hides) {
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        softmax.cap(score[m]);
        if (hides) this->hide_unseen(score[m], m, key);
        softmax.weigh(m, score[m], result[m]);
      }
      wait_copies<1>();
      block_barrier();  // values have arrived
      Products::add(result, score, shared_values, this->a.v_head_dim, lane);
      return true;
    }
  };
};

}  // namespace kformer::Impl::cuda
