// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"
#include "ops/attention/cuda/forward_block.hpp"

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
  /// And the fragments of its warp's queries, where they are kept in registers.
  struct Block : ForwardBlock<Tiles, std::uint16_t> {
    using Base = ForwardBlock<Tiles, std::uint16_t>;
    using Base::first_row, Base::lane, Base::result, Base::shared_keys, Base::shared_queries,
        Base::shared_values, Base::softmax;
    using Scores = typename Base::Scores;

    std::uint32_t query[Tiles::query_in_registers ? row_tiles : 1][features / 16][4];

    KFORMER_DEVICE Block(const ForwardKernel& kernel, const QueryTile& of_tile, int of_head)
        : Base(kernel.a, of_tile, of_head, Tiles::query_in_registers ? 0 : query_bytes) {}

    /// False if something is seen by some queries alone that would spoil the results of others.
    KFORMER_DEVICE bool run() {
      load_queries();
      if (!this->pass_keys([this](Scores& score) { multiply_keys(score); },
                           [this](Scores& score, int key, bool hides) { return attend(score, key, hides); }))
        return false;
      this->store([](std::uint16_t* out, float x, float y) {
        *reinterpret_cast<std::uint32_t*>(out) = pack<type>(x, y);
      });
      return true;
    }

    KFORMER_DEVICE void load_queries() {
      this->copy_queries();
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

    /// False if a value is not finite and only some rows see it: it may be NaN, and 0 · NaN is not 0.
    KFORMER_DEVICE bool attend(Scores& score, int key, bool hides) {
      std::uint32_t weight[row_tiles][keys / 16][4];
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        softmax.cap(score[m]);
        if (hides) this->hide_unseen(score[m], m, key);
        softmax.template pass<type>(m, score[m], weight[m], result[m]);
      }
      wait_copies<1>();
      if (hides) {
        if (any_of_block(copied_not_finite<type, keys, features, threads>(shared_values)))
          return wait_copies<0>(), false;
      } else {
        block_barrier();
      }
      multiply_values(weight);
      return true;
    }

    KFORMER_DEVICE void multiply_keys(Scores& score) const {
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
  };
};

}  // namespace kformer::Impl::cuda
