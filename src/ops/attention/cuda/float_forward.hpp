// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"
#include "ops/attention/cuda/forward_block.hpp"
#include "ops/common/cuda/split_floats.hpp"

/// \file
/// Attention forward of floats on tensor cores, by three products of TF32 for each: as `ForwardKernel`, a block has
/// the rows of one head's tile of queries, and keys pass through shared memory. Numbers are split in registers.

namespace kformer::Impl::cuda {

// Occupancy of FloatForwardKernel: registers limit it to two blocks. A thread holds scores, results, and both parts of
// the factors under way. The warp that multiplies a number splits it: tiles with fewer queries per warp would split keys
// and values more often.
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
  /// Columns of 8 keys or features whose products are under way together: none waits for the one before.
  static constexpr int columns = keys / 8 < 4 / row_tiles ? keys / 8 : 4 / row_tiles;

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
      this->pass_keys([this](Scores& score) { multiply_keys(score); },
                      [this](Scores& score, int key, bool hides) { return attend(score, key, hides); });
      bool doubtful = false;
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 8; ++n) {
          KFORMER_DEVICE_UNROLL
          for (int i = 0; i < 4; ++i) doubtful = doubtful || is_doubtful(result[m][n][i]);
        }
      }
      if (any_of_block(doubtful)) return false;
      this->store(
          [](float* out, float x, float y) { store_words(out, Words<2>{float_as_bits(x), float_as_bits(y)}); });
      return true;
    }

    /// The place of chunk 2 · pair + half. Swizzling stays within eight chunks: others differ by a constant, which
    /// spares registers.
    KFORMER_DEVICE static SharedAddress place(int row, int pair, int half) {
      return static_cast<SharedAddress>(pair / 4 * 128) + Tile::at(row, pair % 4 * 2 + half);
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
      multiply_values(score);
      return true;
    }

    KFORMER_DEVICE void multiply_keys(Scores& score) const {
      clear(score);
      const int lane = opaque(this->lane);  // what follows from it is not kept in registers meanwhile
      KFORMER_DEVICE_NO_UNROLL
      for (int k = 0; k < features / 8; ++k) {
        SplitRows query[row_tiles];
        KFORMER_DEVICE_UNROLL
        for (int m = 0; m < row_tiles; ++m) {
          std::uint32_t q[4];
          load_matrices(q, shared_queries + place(first_row(m) + lane % 16, k, lane / 16));
          KFORMER_DEVICE_UNROLL
          for (int i = 0; i < 4; ++i) query[m].put(i, bits_as_float(q[i]));
        }
        KFORMER_DEVICE_UNROLL
        for (int first = 0; first < keys / 8; first += columns) {
          SplitColumns key[columns];
          KFORMER_DEVICE_UNROLL
          for (int n = 0; n < columns; n += 2) {
            std::uint32_t b[4];
            load_matrices(b, shared_keys + place(8 * (first + n) + lane % 8 + lane / 16 * 8, k, lane / 8 % 2));
            KFORMER_DEVICE_UNROLL
            for (int i = 0; i < 4; ++i) key[n + i / 2].put(i % 2, bits_as_float(b[i]));
          }
          add_split_products(score, first, query, key);
        }
      }
    }

    /// The weights of two keys next to each other are in one thread, which has them as columns lane % 4 and
    /// lane % 4 + 4 of the left factor: the same keys are these rows of the right one.
    KFORMER_DEVICE void multiply_values(const Scores& weight) {
      const int lane = opaque(this->lane);
      SplitRows left[keys / 8][row_tiles];
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < keys / 8; ++k) {
        KFORMER_DEVICE_UNROLL
        for (int m = 0; m < row_tiles; ++m) {
          const auto& w = weight[m][k];
          left[k][m].put(0, w[0]), left[k][m].put(1, w[2]), left[k][m].put(2, w[1]), left[k][m].put(3, w[3]);
        }
      }
      KFORMER_DEVICE_UNROLL
      for (int first = 0; first < features / 8; first += columns) {
        KFORMER_DEVICE_UNROLL
        for (int k = 0; k < keys / 8; ++k) {
          SplitColumns value[columns];
          KFORMER_DEVICE_UNROLL
          for (int n = 0; n < columns; ++n) {
            KFORMER_DEVICE_UNROLL
            for (int i = 0; i < 2; ++i) value[n].put(i, value_at(lane, 8 * k + 2 * (lane % 4) + i, first + n));
          }
          add_split_products(result, first, left[k], value);
        }
      }
    }
    /// Of this thread's feature of column n.
    KFORMER_DEVICE float value_at(int lane, int row, int n) const {
      return load_shared<float>(shared_values + place(row, n, lane / 16) + 4 * (lane / 4 % 4));
    }
  };
};

}  // namespace kformer::Impl::cuda
