// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/backward_exact.hpp"
#include "ops/attention/cuda/gradients.hpp"
#include "ops/attention/cuda/hopper/tiles.hpp"

/// \file
/// Attention backward on sm_90a: the two passes of ../backward.hpp, the same bits every time, in warpgroups. One copies tiles
/// and statistics, each of the others owns 64 rows of keys or of queries and multiplies. With what is owned as rows,
/// S = own · partnerᵀ of q and k and dP likewise of dout and v come from shared memory; P and dS stay in registers as factors
/// of the gradients.

namespace kformer::Impl::cuda::hopper {

// Occupancy of BackwardKernel: registers limit it to one block, as in forward. Of keys and 128 features a thread holds the sums
// of two gradients (128 registers), scores and their gradients for 64 queries (64) and both as factors (32): 224 of 240. A
// block that owns queries has one sum, which leaves room for 128 keys at a time.
template <Half type_, int features_, Side side_>
struct BackwardTiles {
  static constexpr Half type = type_;
  static constexpr int features = features_;  ///< of q, k and v
  static constexpr Side side = side_;
  static constexpr int consumers = 2, rows = 64 * consumers, partners = side == Side::keys ? 64 : 128,
                       stages = features == 64 ? 4 : 2;
  /// Whether the products that add to gradients are waited for in the next pass: registers have to suffice for the scores of
  /// both.
  static constexpr bool sums_in_flight = features == 64;
  static constexpr int producer_registers = 24, consumer_registers = 240;
};

template <class Tiles>
struct BackwardKernel {
  static constexpr Half type = Tiles::type;
  static constexpr Side side = Tiles::side;
  static constexpr int features = Tiles::features, rows = Tiles::rows, partners = Tiles::partners,
                       stages = Tiles::stages, consumers = Tiles::consumers;
  static constexpr bool of_keys = side == Side::keys;
  static constexpr bool runs_on(const Machine& m) { return m.capability == 90; }
  static constexpr int threads = warpgroup_threads * (consumers + 1), blocks_per_multiprocessor = 1;
  using OwnTile = PanelTile<rows, features>;
  using PartnerRing = Ring<PanelTile<partners, features>, stages>;
  // Of queries that pass by: where their weights begin and δ, an array of each per stage.
  static constexpr int statistics_bytes = of_keys ? 2 * partners * int(sizeof(float)) : 0;
  static constexpr int barriers_bytes = 8 + 2 * PartnerRing::barrier_bytes;
  static constexpr int shared_bytes =
      tile_alignment + 2 * OwnTile::bytes + 2 * PartnerRing::bytes + stages * statistics_bytes + barriers_bytes;

  GradientArguments g;
  Sequences owned;  ///< the owned tokens in the place of queries
  TensorMap own_first_map, own_second_map, partner_first_map, partner_second_map;

  KFORMER_DEVICE void operator()() const {
    const Block block(*this);
    if (block.length == 0) return;
    if (thread_index() == 0) block.init_barriers();
    block_barrier();
    if (thread_index() < warpgroup_threads) {
      give_registers_back<Tiles::producer_registers>();
      if (thread_index() == 0) block.copy_tiles();
      if (of_keys && thread_index() / 32 == 1) block.copy_statistics();
    } else {
      take_registers<Tiles::consumer_registers>();
      Consumer(block).run();
    }
  }

 private:
  /// What all threads of a block share.
  struct Block {
    const BackwardKernel& kernel;
    const GradientArguments& g;
    const AttentionArguments& a;
    int head;
    QueryTile tile;
    int length, first_partner, passes_per_head, passes;
    OwnTile own_first, own_second;
    SharedAddress statistics, own_full;
    PartnerRing first, second;

    KFORMER_DEVICE explicit Block(const BackwardKernel& of_kernel)
        : kernel(of_kernel),
          g(of_kernel.g),
          a(of_kernel.g.a),
          head(block_index() % heads()),
          tile(find_owned_tile<side, rows>(of_kernel.owned, block_index() / heads())),
          length(owned_length<side>(tile)) {
      const int last = (tile.first + rows < length ? tile.first + rows : length) - 1;
      first_partner = visible_partners<side>(a, tile, tile.first).begin / partners * partners;
      const int span = visible_partners<side>(a, tile, last).end - first_partner;
      passes_per_head = span > 0 ? (span + partners - 1) / partners : 0;
      passes = passes_per_head * (of_keys ? a.group : 1);
      own_first.begin = (shared_begin() + tile_alignment - 1) / tile_alignment * tile_alignment;
      own_second.begin = own_first.begin + OwnTile::bytes;
      first.tiles = own_second.begin + OwnTile::bytes;
      second.tiles = first.tiles + PartnerRing::bytes;
      statistics = second.tiles + PartnerRing::bytes;
      own_full = statistics + static_cast<SharedAddress>(stages * statistics_bytes);
      first.barriers = own_full + 8;
      second.barriers = first.barriers + PartnerRing::barrier_bytes;
    }

    KFORMER_DEVICE int heads() const { return of_keys ? g.kv_heads : a.q_heads; }
    KFORMER_DEVICE int partner_of(int pass) const { return first_partner + pass % passes_per_head * partners; }
    KFORMER_DEVICE int partner_head_of(int pass) const {
      return of_keys ? head * a.group + pass / passes_per_head : head / a.group;
    }
    KFORMER_DEVICE SharedAddress statistics_of_pass(int pass) const {
      return statistics + static_cast<SharedAddress>(pass % stages * statistics_bytes);
    }

    KFORMER_DEVICE void init_barriers() const {
      constexpr int warps = warpgroup_threads / 32 * consumers;
      init_barrier(own_full, 1);
      first.init(warps, 1);
      second.init(warps, of_keys ? 1 + 32 : 1);
      publish_barriers();
    }

    KFORMER_DEVICE void copy_tiles() const {
      if (passes == 0) return;
      const int own = tile.first + (of_keys ? tile.kv_begin : tile.q_begin),
                begin = of_keys ? tile.q_begin : tile.kv_begin;
      arrive_and_expect(own_full, 2 * OwnTile::bytes);
      own_first.copy(kernel.own_first_map, own_full, own, head, tile.batch);
      own_second.copy(kernel.own_second_map, own_full, own, head, tile.batch);
      for (int i = 0; i < passes; ++i) {
        first.fill(i, kernel.partner_first_map, begin + partner_of(i), partner_head_of(i), tile.batch);
        second.fill(i, kernel.partner_second_map, begin + partner_of(i), partner_head_of(i), tile.batch);
      }
    }

    /// By a warp, beside the copies of second operands.
    KFORMER_DEVICE void copy_statistics() const {
      for (int i = 0; i < passes; ++i) {
        second.wait_empty(i);
        for (int j = thread_index() % 32; j < partners; j += 32) {
          const int query = partner_of(i) + j;
          const QueryStatistics q =
              query < tile.q_len ? statistics_of(g, tile, partner_head_of(i), query) : no_statistics();
          const SharedAddress to = statistics_of_pass(i) + static_cast<SharedAddress>(j * int(sizeof(float)));
          store_shared(to, q.from);
          store_shared(to + partners * sizeof(float), q.delta);
        }
        arrive(second.full(i));
      }
    }
  };

  /// What a thread has of its warpgroup: scores, gradients and factors in the fragments of its warp.
  struct Consumer : Place {
    const Block& block;
    bool spoiled = false;  ///< a number that some of the rows do not meet is not finite
    float score[partners / 8][4], gradient[partners / 8][4];
    std::uint32_t weight[of_keys ? partners / 16 : 1][4], slope[partners / 16][4];
    float of_first[features / 8][4], of_second[of_keys ? features / 8 : 1][4];
    QueryStatistics own[2];  ///< of queries that are owned

    KFORMER_DEVICE explicit Consumer(const Block& of_block) : block(of_block) {
      clear(of_first);
      clear(of_second);
    }
    /// The compiler moves no use of the numbers to before this.
    template <int n>
    KFORMER_DEVICE static void hold(float (&x)[n][4]) {
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < n; ++j) {
        KFORMER_DEVICE_UNROLL
        for (int i = 0; i < 4; ++i) x[j][i] = opaque(x[j][i]);
      }
    }

    KFORMER_DEVICE int row() const { return row_from(block.tile.first); }

    KFORMER_DEVICE void run() {
      if (block.passes > 0) pass_partners();
      // Barrier 0 is that of the whole block.
      if (any_of_threads(1 + group(), warpgroup_threads, spoiled))
        differentiate_rows_exactly();
      else
        store();
    }

    KFORMER_DEVICE void pass_partners() {
      if constexpr (!of_keys) {
        KFORMER_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half)
          own[half] = row() + 8 * half < block.length
                          ? statistics_of(block.g, block.tile, block.head, row() + 8 * half)
                          : no_statistics();
      }
      wait_phase(block.own_full, 0);
      warp_barrier();
      const Turns<consumers> turns{1 + consumers, group()};
      turns.begin();
      for (int i = 0; i < block.passes; ++i) {
        turns.wait();
        multiply(score, block.own_first, block.first, i);
        multiply(gradient, block.own_second, block.second, i);
        turns.pass(i + 1 == block.passes);
        wait_products<1>();  // for all but dP
        hold(score);
        if (Tiles::sums_in_flight && i > 0) release(i - 1);
        const bool hides = this->hides(i);
        if (hides) search_partners(i);
        make_weights(i, hides);
        wait_products<0>();
        hold(gradient);
        if constexpr (of_keys) {
          pack_factor<type>(weight, score);
          if (!Tiles::sums_in_flight) add_product(of_second, weight, block.second.tile(i));
        }
        make_slopes(i, hides);
        pack_factor<type>(slope, gradient);
        if constexpr (of_keys && Tiles::sums_in_flight) add_product(of_second, weight, block.second.tile(i));
        add_product(of_first, slope, block.first.tile(i));
        if (!Tiles::sums_in_flight) {
          wait_products<0>();
          release(i);
        }
      }
      wait_products<0>();
    }

    KFORMER_DEVICE void release(int i) const {
      block.first.release(i);
      block.second.release(i);
    }

    KFORMER_DEVICE void multiply(float (&result)[partners / 8][4], const OwnTile& own_tile,
                                 const PartnerRing& ring, int i) const {
      ring.wait(i);
      fence_products();
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < features / 16; ++k)
        multiply_shared<type, partners>(result, own_tile.features_of_rows(64 * group(), k),
                                        ring.tile(i).features_of_rows(0, k), k > 0);
      commit_products();
    }
    KFORMER_DEVICE void add_product(float (&sum)[features / 8][4],
                                    const std::uint32_t (&factor)[partners / 16][4],
                                    const PanelTile<partners, features>& partner) const {
      fence_products();
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < partners / 16; ++k)
        multiply_registers<type, features>(sum, factor[k], partner.rows_of_features(k));
      commit_products();
    }

    /// Whether some row of the warpgroup does not meet some partner of the pass.
    KFORMER_DEVICE bool hides(int i) const {
      const int partner = block.partner_of(i), first = block.tile.first + 64 * group(),
                last = (first + 64 < block.length ? first + 64 : block.length) - 1;
      return visible_partners<side>(block.a, block.tile, last).begin > partner ||
             visible_partners<side>(block.a, block.tile, first).end < partner + partners;
    }
    /// 0 · NaN is not 0: partners that a row does not meet must be finite.
    KFORMER_DEVICE void search_partners(int i) {
      bool found = block.first.tile(i).template not_finite<type>(thread());
      if constexpr (of_keys) found |= block.second.tile(i).template not_finite<type>(thread());
      spoiled = spoiled || found;
      fence_tile_copies();
    }

    struct Pair {
      float value[2];
    };
    /// A number of each of two neighbouring queries that pass by.
    KFORMER_DEVICE Pair passing(int i, int which, int at) const {
      return load_shared<Pair>(block.statistics_of_pass(i) +
                               static_cast<SharedAddress>((which * partners + at) * int(sizeof(float))));
    }
    /// P = exp(S − lse) in the place of S; 0 for pairs that do not meet.
    KFORMER_DEVICE void make_weights(int i, bool hides) {
      const float factor = exponent_factor(block.a);
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < partners / 8; ++n) {
        Pair from;
        if constexpr (of_keys) from = passing(i, 0, 8 * n + 2 * (lane() % 4));
        KFORMER_DEVICE_UNROLL
        for (int j = 0; j < 4; ++j)
          score[n][j] = exp2_fast(score[n][j] * factor - (of_keys ? from.value[j % 2] : own[j / 2].from));
      }
      if (hides) hide_pairs(i, score);
    }
    /// dS = P ∘ (dP − δ) in the place of dP.
    KFORMER_DEVICE void make_slopes(int i, bool hides) {
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < partners / 8; ++n) {
        Pair delta;
        if constexpr (of_keys) delta = passing(i, 1, 8 * n + 2 * (lane() % 4));
        KFORMER_DEVICE_UNROLL
        for (int j = 0; j < 4; ++j)
          gradient[n][j] = score[n][j] * (gradient[n][j] - (of_keys ? delta.value[j % 2] : own[j / 2].delta));
      }
      if (hides) hide_pairs(i, gradient);
    }
    KFORMER_DEVICE void hide_pairs(int i, float (&x)[partners / 8][4]) const {
      const QueryTile& tile = block.tile;
      hide(x, {visible_partners<side>(block.a, tile, row()), visible_partners<side>(block.a, tile, row() + 8)},
           block.partner_of(i), 0);
    }

    KFORMER_DEVICE void differentiate_rows_exactly() const {
      differentiate_exactly<Halves<type>, features, side, true, of_keys>(block.g, exact_tile(block.tile),
                                                                         block.head, exact_rows(), warps);
    }

    KFORMER_DEVICE void store() const {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int mine = row() + 8 * half;
        if (mine >= block.length) continue;
        const GradientRows<std::uint16_t> to = gradient_rows<side>(block.g, block.tile, block.head, mine);
        store_row(to.first, of_first, half, block.a.scale);
        if constexpr (of_keys) store_row(to.second, of_second, half, 1);
      }
    }
    KFORMER_DEVICE static void store_row(std::uint16_t* to, const float (&sum)[features / 8][4], int half,
                                         float factor) {
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < features / 8; ++n)
        *reinterpret_cast<std::uint32_t*>(to + 8 * n + 2 * (lane() % 4)) =
            pack<type>(sum[n][2 * half] * factor, sum[n][2 * half + 1] * factor);
    }
  };
};

}  // namespace kformer::Impl::cuda::hopper
