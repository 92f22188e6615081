// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/softmax.hpp"
#include "ops/attention/cuda/tiles.hpp"

/// \file
/// What forward does with tensor cores whatever they multiply.

namespace kformer::Impl::cuda {

/// What a thread has of a block with a tile of one head's queries: results in the fragments of its warp, and where queries
/// and keys are in shared memory.
template <class Tiles, class Stored>
struct ForwardBlock {
  static constexpr int features = Tiles::features, row_tiles = Tiles::row_tiles, keys = Tiles::keys,
                       queries = Tiles::queries, threads = 32 * Tiles::warps;
  using Tile = TileOf<Stored, features>;
  using Scores = float[row_tiles][keys / 8][4];

  const AttentionArgumentsOf<Stored>& a;
  const QueryTile& tile;
  int head;
  int lane, warp;
  SharedAddress shared_queries, shared_keys, shared_values;
  float result[row_tiles][features / 8][4];
  Softmax<row_tiles> softmax;

  KFORMER_DEVICE ForwardBlock(const AttentionArgumentsOf<Stored>& arguments, const QueryTile& of_tile,
                              int of_head, int bytes_before_keys)
      : a(arguments),
        tile(of_tile),
        head(of_head),
        lane(thread_index() % 32),
        warp(thread_index() / 32),
        softmax(arguments) {
    shared_queries = shared_begin();
    shared_keys = shared_queries + bytes_before_keys;
    shared_values = shared_keys + keys * Tile::row_bytes;
    clear(result);
  }

  KFORMER_DEVICE int first_row(int m) const { return (warp * row_tiles + m) * 16; }

  KFORMER_DEVICE void copy_queries() const {
    copy_rows<queries, features, threads>(shared_queries, a.q.row(tile.batch, tile.q_begin + tile.first, head),
                                          a.q.token_stride, tile.q_len - tile.first, a.head_dim);
  }
  KFORMER_DEVICE void copy_keys(int first) const {
    copy_rows<keys, features, threads>(shared_keys, a.k.row(tile.batch, tile.kv_begin + first, head / a.group),
                                       a.k.token_stride, tile.kv_len - first, a.head_dim);
  }
  KFORMER_DEVICE void copy_values(int first) const {
    copy_rows<keys, features, threads>(shared_values,
                                       a.v.row(tile.batch, tile.kv_begin + first, head / a.group),
                                       a.v.token_stride, tile.kv_len - first, a.v_head_dim);
  }

  /// All keys that the tile sees, in passes. `multiply_keys(score)` makes the scores of a pass; `attend(score, key, hides)`
  /// weighs those of the keys from `key` on, waits for their values and multiplies them, or is false to end it.
  template <class Keys, class Attend>
  KFORMER_DEVICE bool pass_keys(Keys multiply_keys, Attend attend) const {
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
      Scores score;
      multiply_keys(score);
      block_barrier();  // all warps have read the keys
      if (key + keys < last.end) copy_keys(key + keys);
      commit_copies();
      if (!attend(score, key, last.begin > key || first.end < key + keys)) return false;
      block_barrier();  // all warps have read the values
    }
    wait_copies<0>();
    return true;
  }

  /// By this thread's rows of tile m.
  KFORMER_DEVICE void hide_unseen(float (&score)[keys / 8][4], int m, int first_key) const {
    const int row = tile.first + first_row(m) + lane / 4;
    hide(score, {visible_keys(a, tile, row), visible_keys(a, tile, row + 8)}, first_key);
  }

  /// `put(out, x, y)` stores two results next to each other.
  template <class Put>
  KFORMER_DEVICE void store(Put put) {
    KFORMER_DEVICE_UNROLL
    for (int m = 0; m < row_tiles; ++m) {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const RowSum row = softmax.finish(m, half);
        const int query_index = tile.first + first_row(m) + lane / 4 + 8 * half;
        if (query_index >= tile.q_len) continue;
        Stored* out = a.out.row(tile.batch, tile.q_begin + query_index, head);
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 8; ++n) {
          const int feature = 8 * n + 2 * (lane % 4);
          const float x = result[m][n][2 * half] * row.inverse, y = result[m][n][2 * half + 1] * row.inverse;
          if (feature < a.v_head_dim) put(out + feature, x, y);
        }
        if (lane % 4 == 0) a.lse.at(tile.batch, head, tile.q_begin + query_index) = row.lse;
      }
    }
  }
};

}  // namespace kformer::Impl::cuda
