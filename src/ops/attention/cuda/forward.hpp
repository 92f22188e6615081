// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"
#include "ops/attention/cuda/softmax.hpp"
#include "ops/attention/cuda/tiles.hpp"

/// \file
/// Attention forward by `mma.sync` (compute capability 8.0 and later), after FlashAttention-2 (Dao,
/// arXiv:2307.08691): a block has the rows of one head's tile of queries, a warp 16 · `row_tiles` of them, and
/// keys pass through shared memory.

namespace kformer::Impl::cuda {

template <Half type_, int features_, int warps_, int row_tiles_, int keys_, bool query_in_registers_,
          int blocks_per_multiprocessor_>
struct ForwardTiles {
  static constexpr Half type = type_;
  static constexpr int features = features_;  ///< of q, k and v, padded
  static constexpr int warps = warps_;
  static constexpr int row_tiles = row_tiles_;  ///< of 16 queries, per warp
  static constexpr int keys = keys_;            ///< per pass
  static constexpr bool query_in_registers = query_in_registers_;
  static constexpr int blocks_per_multiprocessor = blocks_per_multiprocessor_;
  static constexpr int queries = 16 * warps * row_tiles;
};

template <class Tiles>
struct ForwardKernel {
  static constexpr Half type = Tiles::type;
  static constexpr int features = Tiles::features, warps = Tiles::warps, row_tiles = Tiles::row_tiles,
                       keys = Tiles::keys, queries = Tiles::queries;
  static constexpr int threads = 32 * warps, blocks_per_multiprocessor = Tiles::blocks_per_multiprocessor;
  static constexpr int row_bytes = Swizzled<features>::row_bytes;
  static constexpr int query_bytes = queries * row_bytes, key_bytes = keys * row_bytes;
  static constexpr int shared_bytes = Tiles::query_in_registers
                                          ? (query_bytes > 2 * key_bytes ? query_bytes : 2 * key_bytes)
                                          : query_bytes + 2 * key_bytes;

  AttentionArguments a;
  Sequences sequences;

  KFORMER_DEVICE void operator()() const {
    const int head = block_index() % a.q_heads;
    const QueryTile tile = find_tile<queries>(sequences, block_index() / a.q_heads);
    if (tile.q_len == 0) return;
    if (!Block(*this, tile, head).run()) attend_exactly<Halves<type>, features>(a, tile, head, queries, warps);
  }

 private:
  /// What a thread has of its block: queries, scores and results in the fragments of its warp.
  struct Block {
    const AttentionArguments& a;
    const QueryTile& tile;
    int head;
    int lane, warp;
    SharedAddress shared_queries, shared_keys, shared_values;
    std::uint32_t query[Tiles::query_in_registers ? row_tiles : 1][features / 16][4];
    float result[row_tiles][features / 8][4];
    Softmax<row_tiles> softmax;

    KFORMER_DEVICE Block(const ForwardKernel& kernel, const QueryTile& of_tile, int of_head)
        : a(kernel.a),
          tile(of_tile),
          head(of_head),
          lane(thread_index() % 32),
          warp(thread_index() / 32),
          softmax(kernel.a) {
      shared_queries = shared_begin();
      shared_keys = Tiles::query_in_registers ? shared_queries : shared_queries + query_bytes;
      shared_values = shared_keys + key_bytes;
      clear(result);
    }

    /// False if something is seen by some queries alone that would spoil the results of others.
    KFORMER_DEVICE bool run() {
      load_queries();
      if (!pass_keys()) return false;
      store();
      return true;
    }

    KFORMER_DEVICE int first_row(int m) const { return (warp * row_tiles + m) * 16; }

    KFORMER_DEVICE void load_queries() {
      copy_rows<queries, features, threads>(shared_queries,
                                            a.q.row(tile.batch, tile.q_begin + tile.first, head),
                                            a.q.token_stride, tile.q_len - tile.first, a.head_dim);
      commit_copies();
      if constexpr (Tiles::query_in_registers) {
        wait_copies<0>();
        block_barrier();
        KFORMER_DEVICE_UNROLL
        for (int m = 0; m < row_tiles; ++m) {
          KFORMER_DEVICE_UNROLL
          for (int k = 0; k < features / 16; ++k) load_query(query[m][k], m, k);
        }
        block_barrier();  // keys come to the same place
      }
    }
    KFORMER_DEVICE void load_query(std::uint32_t (&r)[4], int m, int k) const {
      load_matrices(r, shared_queries + Swizzled<features>::at(first_row(m) + lane % 16, 2 * k + lane / 16));
    }

    KFORMER_DEVICE void copy_keys(int first) const {
      copy_rows<keys, features, threads>(shared_keys,
                                         a.k.row(tile.batch, tile.kv_begin + first, head / a.group),
                                         a.k.token_stride, tile.kv_len - first, a.head_dim);
    }
    KFORMER_DEVICE void copy_values(int first) const {
      copy_rows<keys, features, threads>(shared_values,
                                         a.v.row(tile.batch, tile.kv_begin + first, head / a.group),
                                         a.v.token_stride, tile.kv_len - first, a.v_head_dim);
    }

    KFORMER_DEVICE bool pass_keys() {
      const int last_query = (tile.first + queries < tile.q_len ? tile.first + queries : tile.q_len) - 1;
      const Visible first = visible_keys(a, tile, tile.first), last = visible_keys(a, tile, last_query);
      int key = first.begin / keys * keys;
      if (key < last.end) copy_keys(key);
      commit_copies();
      for (; key < last.end; key += keys) {
        copy_values(key);
        commit_copies();
        wait_copies<1>();
        block_barrier();  // keys are there
        float score[row_tiles][keys / 8][4];
        multiply_keys(score);
        block_barrier();  // and may go
        if (key + keys < last.end) copy_keys(key + keys);
        commit_copies();
        const bool hides = last.begin > key || first.end < key + keys;
        std::uint32_t weight[row_tiles][keys / 16][4];
        KFORMER_DEVICE_UNROLL
        for (int m = 0; m < row_tiles; ++m) {
          softmax.cap(score[m]);
          if (hides) hide_unseen(score[m], m, key);
          softmax.template pass<type>(m, score[m], weight[m], result[m]);
        }
        wait_copies<1>();
        // A value that a query does not see may be NaN, and 0 · NaN is not 0.
        if (hides) {
          if (any_of_block(copied_not_finite<type, keys, features, threads>(shared_values)))
            return wait_copies<0>(), false;
        } else {
          block_barrier();
        }
        multiply_values(weight);
        block_barrier();
      }
      wait_copies<0>();
      return true;
    }

    KFORMER_DEVICE void multiply_keys(float (&score)[row_tiles][keys / 8][4]) const {
      clear(score);
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < features / 16; ++k) {
        std::uint32_t loaded[row_tiles][4];
        if constexpr (!Tiles::query_in_registers) {
          KFORMER_DEVICE_UNROLL
          for (int m = 0; m < row_tiles; ++m) load_query(loaded[m], m, k);
        }
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < keys / 16; ++n) {
          std::uint32_t b[4];
          load_matrices(
              b, shared_keys + Swizzled<features>::at(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
          KFORMER_DEVICE_UNROLL
          for (int m = 0; m < row_tiles; ++m) {
            const auto& q = [&]() -> const std::uint32_t(&)[4] {
              if constexpr (Tiles::query_in_registers)
                return query[m][k];
              else
                return loaded[m];
            }();
            multiply_add<type>(score[m][2 * n], q, b[0], b[1]);
            multiply_add<type>(score[m][2 * n + 1], q, b[2], b[3]);
          }
        }
      }
    }

    /// By this thread's rows of tile m.
    KFORMER_DEVICE void hide_unseen(float (&score)[keys / 8][4], int m, int first_key) const {
      const int row = tile.first + first_row(m) + lane / 4;
      hide(score, {visible_keys(a, tile, row), visible_keys(a, tile, row + 8)}, first_key);
    }

    KFORMER_DEVICE void multiply_values(const std::uint32_t (&weight)[row_tiles][keys / 16][4]) {
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < keys / 16; ++k) {
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 16; ++n) {
          std::uint32_t b[4];
          load_matrices_transposed(
              b, shared_values + Swizzled<features>::at(16 * k + lane % 16, 2 * n + lane / 16));
          KFORMER_DEVICE_UNROLL
          for (int m = 0; m < row_tiles; ++m) {
            multiply_add<type>(result[m][2 * n], weight[m][k], b[0], b[1]);
            multiply_add<type>(result[m][2 * n + 1], weight[m][k], b[2], b[3]);
          }
        }
      }
    }

    KFORMER_DEVICE void store() {
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        KFORMER_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const RowSum row = softmax.finish(m, half);
          const int query_index = tile.first + first_row(m) + lane / 4 + 8 * half;
          if (query_index >= tile.q_len) continue;
          std::uint16_t* out = a.out.row(tile.batch, tile.q_begin + query_index, head);
          KFORMER_DEVICE_UNROLL
          for (int n = 0; n < features / 8; ++n) {
            const int feature = 8 * n + 2 * (lane % 4);
            const std::uint32_t both =
                pack<type>(result[m][n][2 * half] * row.inverse, result[m][n][2 * half + 1] * row.inverse);
            if (feature < a.v_head_dim) *reinterpret_cast<std::uint32_t*>(out + feature) = both;
          }
          if (lane % 4 == 0) a.lse.at(tile.batch, head, tile.q_begin + query_index) = row.lse;
        }
      }
    }
  };
};

}  // namespace kformer::Impl::cuda
