// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"
#include "ops/attention/cuda/hopper/tiles.hpp"
#include "ops/attention/cuda/softmax.hpp"

/// \file
/// Attention forward on sm_90a, after FlashAttention-3 (Shah et al., arXiv:2407.08608): one warpgroup copies
/// tiles, the others have 64 queries each and multiply; the scores of the next keys are on their way while the
/// values of the last are. A block may compute several tiles of queries, and what the next one needs arrives
/// meanwhile.

namespace kformer::Impl::cuda::hopper {

// Occupancy of ForwardKernel: registers limit it to one block, and shared memory for 256 features: scores of 64
// queries and up to 128 keys, weights and results of a warpgroup take 120 to 188 of the 160 or 240 registers that
// each of its threads has. Warpgroup products read shared memory by themselves, one instruction for 64 × 128 × 16
// factors, and threads only wait for them. Two or three warpgroups keep the tensor cores busy: one computes its
// softmax while another multiplies. With smaller tiles each key would pass through shared memory for fewer
// queries.
template <Half type_, int features_>
struct ForwardTiles {
  static constexpr Half type = type_;
  static constexpr int features = features_;  ///< of q, k and v
  static constexpr int consumers = features <= 96 ? 3 : 2;
  // The most that spill no register (96 features) and fit shared memory in two stages (256).
  static constexpr int keys = features == 256  ? 80
                              : features == 96 ? 96
                                               : 128,
                       stages = 2, queries = 64 * consumers;
  /// Whether a block computes more than one tile: threads with 160 registers have none left for what that
  /// takes.
  static constexpr bool several_tiles = consumers == 2;
  // Together all registers of the multiprocessor, with three consumers and with two.
  static constexpr int producer_registers = consumers == 3 ? 32 : 24,
                       consumer_registers = consumers == 3 ? 160 : 240;
};

template <class Tiles>
struct ForwardKernel {
  static constexpr Half type = Tiles::type;
  static constexpr int features = Tiles::features, keys = Tiles::keys, queries = Tiles::queries,
                       consumers = Tiles::consumers;
  static constexpr bool several_tiles = Tiles::several_tiles;
  static constexpr bool runs_on(const Machine& m) { return m.capability == 90; }
  static constexpr int threads = warpgroup_threads * (consumers + 1), blocks_per_multiprocessor = 1;
  using QueryPanels = PanelTile<queries, features>;
  using QueryRing = Ring<QueryPanels, 1>;
  using KeyRing = Ring<PanelTile<keys, features>, Tiles::stages>;
  static constexpr int barriers_bytes = QueryRing::barrier_bytes + 2 * KeyRing::barrier_bytes;
  static constexpr int shared_bytes = tile_alignment + QueryRing::bytes + 2 * KeyRing::bytes + barriers_bytes;

  AttentionArguments a;
  Sequences sequences;
  TensorMap q_map, k_map, v_map;
  int tiles, blocks;  ///< tiles of queries of all heads, and the blocks that share them

  KFORMER_DEVICE void operator()() const {
    const Block block(*this);
    if (thread_index() == 0) block.init_barriers();
    block_barrier();
    if (thread_index() < warpgroup_threads) {
      give_registers_back<Tiles::producer_registers>();
      if (thread_index() == 0) for_each_tile([&](const Work& work) { block.copy_tiles(work); });
    } else {
      take_registers<Tiles::consumer_registers>();
      for_each_tile([&](const Work& work) { Consumer(block, work).run(); });
    }
  }

 private:
  /// A tile of queries of a head, and the passes over keys that some of them see.
  struct Work {
    int round;  ///< of the block, for the ring of queries
    int head;
    QueryTile tile;
    int begin, end;        ///< passes, as the rings of keys and values count them
    int key_of_pass_zero;  ///< where pass 0 would begin

    KFORMER_DEVICE Work(const ForwardKernel& kernel, int of_round, int number, int first_pass)
        : round(of_round),
          head(number % kernel.a.q_heads),
          tile(find_tile<queries>(kernel.sequences, number / kernel.a.q_heads)),
          begin(first_pass) {
      const int last_query = (tile.first + queries < tile.q_len ? tile.first + queries : tile.q_len) - 1;
      const int last_key = visible_keys(kernel.a, tile, last_query).end;
      const int first_key = visible_keys(kernel.a, tile, tile.first).begin / keys * keys;
      end = begin + (last_key > first_key ? (last_key - first_key + keys - 1) / keys : 0);
      key_of_pass_zero = first_key - begin * keys;
    }
    KFORMER_DEVICE int key_of(int pass) const { return key_of_pass_zero + pass * keys; }
  };

  /// f(work) for the tiles of this block, by all its threads.
  template <class F>
  KFORMER_DEVICE void for_each_tile(F f) const {
    int pass = 0, round = 0;
    do {
      const int number = tile_of_round(round, block_index(), blocks);
      if (number >= tiles) return;
      const Work work(*this, round, number, pass);
      if (work.tile.q_len == 0) return;
      f(work);
      pass = work.end % KeyRing::period;
      ++round;
    } while (several_tiles);
  }

  /// What all threads of a block share.
  struct Block {
    const ForwardKernel& kernel;
    QueryRing query;
    KeyRing key, value;

    KFORMER_DEVICE explicit Block(const ForwardKernel& of_kernel) : kernel(of_kernel) {
      query.tiles = (shared_begin() + tile_alignment - 1) / tile_alignment * tile_alignment;
      key.tiles = query.tiles + QueryRing::bytes;
      value.tiles = key.tiles + KeyRing::bytes;
      query.barriers = value.tiles + KeyRing::bytes;
      key.barriers = query.barriers + QueryRing::barrier_bytes;
      value.barriers = key.barriers + KeyRing::barrier_bytes;
    }

    KFORMER_DEVICE void init_barriers() const {
      constexpr int warps = warpgroup_threads / 32 * consumers;
      query.init(warps, 1);
      key.init(warps, 1);
      value.init(warps, 1);
      publish_barriers();
    }

    KFORMER_DEVICE void copy_tiles(const Work& work) const {
      const QueryTile& tile = work.tile;
      query.fill(work.round, kernel.q_map, tile.q_begin + tile.first, work.head, tile.batch);
      for (int i = work.begin; i < work.end; ++i) {
        const int token = tile.kv_begin + work.key_of(i), kv_head = work.head / kernel.a.group;
        key.fill(i, kernel.k_map, token, kv_head, tile.batch);
        value.fill(i, kernel.v_map, token, kv_head, tile.batch);
      }
    }
  };

  /// What a thread has of its warpgroup: scores, weights and results in the fragments of its warp.
  struct Consumer : Place {
    const Block& block;
    const Work& work;
    const AttentionArguments& a;
    bool spoiled = false;  ///< a value that some of the queries do not see is not finite
    float score[keys / 8][4];
    std::uint32_t weight[keys / 16][4];
    float result[features / 8][4];
    Softmax<1> softmax;

    KFORMER_DEVICE Consumer(const Block& of_block, const Work& of_tile)
        : block(of_block), work(of_tile), a(of_block.kernel.a), softmax(of_block.kernel.a) {
      clear(result);
    }

    KFORMER_DEVICE void run() {
      block.query.wait(work.round);
      if (work.end > work.begin)
        pass_keys();
      else
        block.query.release(work.round);
      // Barrier 0 is that of the whole block.
      if (any_of_threads(1 + group(), warpgroup_threads, spoiled))
        attend_rows_exactly();
      else
        store();
    }

    KFORMER_DEVICE void pass_keys() {
      multiply_keys(work.begin);
      wait_products<0>();
      release_keys(work.begin);
      float correction[1][4];
      const Turns<consumers> turns{1 + consumers, group()};
      weigh(work.begin, correction);
      pack_weights();
      if (work.begin + 1 < work.end) turns.begin();
      for (int i = work.begin + 1; i < work.end; ++i) {
        turns.wait();
        multiply_keys(i);
        multiply_values(i - 1);
        turns.pass(i + 1 == work.end);
        wait_products<1>();
        release_keys(i);
        weigh(i, correction);
        softmax.finish_sums();
        // Not a wait in vain: else ptxas moves the next one up, and the weights would come after the products.
        if (i + 1 < work.end) block.key.wait(i + 1);
        wait_products<0>();
        block.value.release(i - 1);
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 8; ++n) {
          KFORMER_DEVICE_UNROLL
          for (int k = 0; k < 4; ++k) result[n][k] *= correction[0][k];
        }
        pack_weights();
      }
      multiply_values(work.end - 1);
      wait_products<0>();
      block.value.release(work.end - 1);
    }

    /// And queries after the last keys.
    KFORMER_DEVICE void release_keys(int i) const {
      block.key.release(i);
      if (i + 1 == work.end) block.query.release(work.round);
    }

    KFORMER_DEVICE void multiply_keys(int i) {
      block.key.wait(i);
      fence_products();
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < features / 16; ++k)
        multiply_shared<type, keys>(score, block.query.tile(work.round).features_of_rows(64 * group(), k),
                                    block.key.tile(i).features_of_rows(0, k), k > 0);
      commit_products();
    }

    KFORMER_DEVICE void multiply_values(int i) {
      block.value.wait(i);
      if (hides(i)) {
        // A value that a query does not see may be NaN, and 0 · NaN is not 0.
        const bool found = block.value.tile(i).template not_finite<type>(thread());
        spoiled = spoiled || found;
        fence_tile_copies();
      }
      fence_products();
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < keys / 16; ++k)
        multiply_registers<type, features>(result, weight[k], block.value.tile(i).rows_of_features(k));
      commit_products();
    }

    KFORMER_DEVICE int row() const { return row_from(work.tile.first); }

    /// Whether some query of the warpgroup does not see some key of tile i.
    KFORMER_DEVICE bool hides(int i) const {
      const int first = work.tile.first + 64 * group();
      return visible_keys(a, work.tile, first + 63).begin > work.key_of(i) ||
             visible_keys(a, work.tile, first).end < work.key_of(i) + keys;
    }

    /// Scores become weights; what was summed before has to be multiplied with `correction`.
    KFORMER_DEVICE void weigh(int i, float (&correction)[1][4]) {
      softmax.cap(score);
      if (hides(i))
        hide(score, {visible_keys(a, work.tile, row()), visible_keys(a, work.tile, row() + 8)}, work.key_of(i));
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < 4; ++k) correction[0][k] = 1;
      std::uint32_t packed[keys / 16][4];
      softmax.template pass<type>(0, score, packed, correction);
    }

    /// Not while values are multiplied: ptxas makes products wait for each other if anything between their
    /// begin and end writes registers that a product reads.
    KFORMER_DEVICE void pack_weights() { pack_factor<type>(weight, score); }

    KFORMER_DEVICE void attend_rows_exactly() const {
      attend_exactly<Halves<type>, features>(a, exact_tile(work.tile), work.head, exact_rows(), warps);
    }

    KFORMER_DEVICE void store() const {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const RowSum sum = softmax.finish(0, half);
        const int query = row() + 8 * half;
        if (query >= work.tile.q_len) continue;
        std::uint16_t* out = a.out.row(work.tile.batch, work.tile.q_begin + query, work.head);
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 8; ++n)
          *reinterpret_cast<std::uint32_t*>(out + 8 * n + 2 * (lane() % 4)) =
              pack<type>(result[n][2 * half] * sum.inverse, result[n][2 * half + 1] * sum.inverse);
        if (lane() % 4 == 0) a.lse.at(work.tile.batch, work.head, work.tile.q_begin + query) = sum.lse;
      }
    }
  };
};

}  // namespace kformer::Impl::cuda::hopper
