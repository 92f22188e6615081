// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"
#include "ops/attention/cuda/softmax.hpp"
#include "ops/attention/cuda/tiles.hpp"
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

  /// What a thread has of its block: scores and results in the fragments of its warp.
  struct Block {
    const AttentionArgumentsOf<float>& a;
    const QueryTile& tile;
    int head;
    int lane, warp;
    SharedAddress shared_queries, shared_keys, shared_values;
    float result[row_tiles][features / 8][4];
    Softmax<row_tiles> softmax;

    KFORMER_DEVICE Block(const FloatForwardKernel& kernel, const QueryTile& of_tile, int of_head)
        : a(kernel.a),
          tile(of_tile),
          head(of_head),
          lane(thread_index() % 32),
          warp(thread_index() / 32),
          softmax(kernel.a) {
      shared_queries = shared_begin();
      shared_keys = shared_queries + query_bytes;
      shared_values = shared_keys + key_bytes;
      clear(result);
    }

    /// False if some result may be wrong. What tensor cores make of numbers that are not finite, or that cannot be
    /// split, is never finite, also where a query does not see them: 0 · NaN is not 0.
    KFORMER_DEVICE bool run() {
      copy_rows<queries, features, threads>(shared_queries,
                                            a.q.row(tile.batch, tile.q_begin + tile.first, head),
                                            opaque(a.q.token_stride), tile.q_len - tile.first, a.head_dim);
      pass_keys();
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
      store();
      return true;
    }

    /// The place of chunk 2 · pair + half. Swizzling stays within eight chunks: others differ by a constant, which
    /// spares registers.
    KFORMER_DEVICE static SharedAddress place(int row, int pair, int half) {
      return static_cast<SharedAddress>(pair / 4 * 128) + Tile::at(row, pair % 4 * 2 + half);
    }

    KFORMER_DEVICE int first_row(int m) const { return (warp * row_tiles + m) * 16; }

    KFORMER_DEVICE void copy_keys(int first) const {
      copy_rows<keys, features, threads>(shared_keys,
                                         a.k.row(tile.batch, tile.kv_begin + first, head / a.group),
                                         opaque(a.k.token_stride), tile.kv_len - first, a.head_dim);
    }
    KFORMER_DEVICE void copy_values(int first) const {
      copy_rows<keys, features, threads>(shared_values,
                                         a.v.row(tile.batch, tile.kv_begin + first, head / a.group),
                                         opaque(a.v.token_stride), tile.kv_len - first, a.v_head_dim);
    }

    KFORMER_DEVICE void pass_keys() {
      const int last_query = (tile.first + queries < tile.q_len ? tile.first + queries : tile.q_len) - 1;
      const Visible first = visible_keys(a, tile, tile.first), last = visible_keys(a, tile, last_query);
      int key = first.begin / keys * keys;
      if (key < last.end) copy_keys(key);
      commit_copies();
      for (; key < last.end; key += keys) {
        copy_values(key);
        commit_copies();
        wait_copies<1>();
        block_barrier();  // keys and queries have arrived
        float score[row_tiles][keys / 8][4];
        multiply_keys(score);
        block_barrier();  // all warps have read the keys
        if (key + keys < last.end) copy_keys(key + keys);
        commit_copies();
        const bool hides = last.begin > key || first.end < key + keys;
        KFORMER_DEVICE_UNROLL
        for (int m = 0; m < row_tiles; ++m) {
          softmax.cap(score[m]);
          if (hides) hide_unseen(score[m], m, key);
          softmax.weigh(m, score[m], result[m]);
        }
        wait_copies<1>();
        block_barrier();  // values have arrived
        multiply_values(score);
        block_barrier();  // all warps have read the values
      }
      wait_copies<0>();
    }

    KFORMER_DEVICE void multiply_keys(float (&score)[row_tiles][keys / 8][4]) const {
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

    /// By this thread's rows of tile m.
    KFORMER_DEVICE void hide_unseen(float (&score)[keys / 8][4], int m, int first_key) const {
      const int row = tile.first + first_row(m) + lane / 4;
      hide(score, {visible_keys(a, tile, row), visible_keys(a, tile, row + 8)}, first_key);
    }

    /// The weights of two keys next to each other are in one thread, which has them as columns lane % 4 and
    /// lane % 4 + 4 of the left factor: the same keys are these rows of the right one.
    KFORMER_DEVICE void multiply_values(const float (&weight)[row_tiles][keys / 8][4]) {
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

    KFORMER_DEVICE void store() {
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        KFORMER_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const RowSum row = softmax.finish(m, half);
          const int query_index = tile.first + first_row(m) + lane / 4 + 8 * half;
          if (query_index >= tile.q_len) continue;
          float* out = a.out.row(tile.batch, tile.q_begin + query_index, head);
          KFORMER_DEVICE_UNROLL
          for (int n = 0; n < features / 8; ++n) {
            const int feature = 8 * n + 2 * (lane % 4);
            const Words<2> both{float_as_bits(result[m][n][2 * half] * row.inverse),
                                float_as_bits(result[m][n][2 * half + 1] * row.inverse)};
            if (feature < a.v_head_dim) store_words(out + feature, both);
          }
          if (lane % 4 == 0) a.lse.at(tile.batch, head, tile.q_begin + query_index) = row.lse;
        }
      }
    }
  };
};

}  // namespace kformer::Impl::cuda
