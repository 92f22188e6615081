// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/backward_exact.hpp"
#include "ops/attention/cuda/gradients.hpp"

/// \file
/// Attention backward by `mma.sync` (compute capability 8.0 and later), after FlashAttention-2 (Dao,
/// arXiv:2307.08691), with two passes where that has one: a block owns a tile of keys and sums over the queries
/// of all heads that share them, or owns a tile of queries and sums over keys. Scores are computed in both, and
/// nothing is added up across blocks: the same bits every time.
///
/// Both passes are one kernel. With what is owned as rows, S = own · partnerᵀ of q and k, dP likewise of dout
/// and v; then the gradient of what is owned is dS · partner of q or k, and P · dout of v.

namespace kformer::Impl::cuda {

template <class Tiles>
struct BackwardKernel {
  static constexpr Half type = Tiles::type;
  static constexpr Side side = Tiles::side;
  static constexpr int features = Tiles::features, warps = Tiles::warps, partners = Tiles::partners,
                       rows = Tiles::rows;
  static constexpr int threads = 32 * warps, blocks_per_multiprocessor = Tiles::blocks_per_multiprocessor;
  static constexpr int own_bytes = rows * Swizzled<features>::row_bytes,
                       partner_bytes = partners * Swizzled<features>::row_bytes;
  static constexpr int statistics_bytes = side == Side::keys ? partners * int(sizeof(QueryStatistics)) : 0;
  static constexpr int shared_bytes = (Tiles::first ? 2 : 1) * own_bytes + 2 * partner_bytes + statistics_bytes;
  static_assert(side == Side::queries || partners <= threads);
  static constexpr bool runs_on(const Machine& m) { return Tiles::runs_on(m); }

  GradientArguments g;
  Sequences owned;  ///< the owned tokens in the place of queries

  KFORMER_DEVICE void operator()() const {
    const int heads = side == Side::queries ? g.a.q_heads : g.kv_heads;
    const int head = block_index() % heads;
    const QueryTile tile = find_owned_tile<side, rows>(owned, block_index() / heads);
    if (owned_length<side>(tile) == 0) return;
    if (!Block(*this, tile, head).run())
      differentiate_exactly<type, features, side, Tiles::first, Tiles::second>(g, tile, head, rows, warps);
  }

 private:
  using Scores = float[partners / 8][4];
  using Factor = std::uint32_t[partners / 16][4];

  /// What a thread has of its block: gradients in the fragments of its warp, which has 16 rows.
  struct Block {
    const GradientArguments& g;
    const AttentionArguments& a;
    const QueryTile& tile;
    int head, lane, warp, length;
    Visible first_range, last_range;  ///< of partners, of the first row and the last
    int first_partner, passes_per_head, passes;
    SharedAddress own_first, own_second, partner_first, partner_second, shared_statistics;
    float of_first[Tiles::first ? features / 8 : 1][4], of_second[Tiles::second ? features / 8 : 1][4];

    KFORMER_DEVICE Block(const BackwardKernel& kernel, const QueryTile& of_tile, int of_head)
        : g(kernel.g),
          a(kernel.g.a),
          tile(of_tile),
          head(of_head),
          lane(thread_index() % 32),
          warp(thread_index() / 32),
          length(owned_length<side>(of_tile)) {
      partner_first = shared_begin();
      partner_second = partner_first + partner_bytes;
      own_first = partner_second + partner_bytes;
      own_second = own_first + own_bytes;
      shared_statistics = own_first + (Tiles::first ? 2 : 1) * own_bytes;
      const int last = (tile.first + rows < length ? tile.first + rows : length) - 1;
      first_range = visible_partners<side>(a, tile, tile.first);
      last_range = visible_partners<side>(a, tile, last);
      first_partner = first_range.begin / partners * partners;
      const int span = last_range.end - first_partner;
      passes_per_head = span > 0 ? (span + partners - 1) / partners : 0;
      passes = passes_per_head * (side == Side::queries ? 1 : a.group);
      clear(of_first);
      clear(of_second);
    }

    /// False if only some rows meet a value that would spoil the gradients of others.
    KFORMER_DEVICE bool run() {
      if (passes > 0 && !pass_partners()) return false;
      store();
      return true;
    }

    KFORMER_DEVICE int row_of(int half) const { return tile.first + 16 * warp + lane / 4 + 8 * half; }
    KFORMER_DEVICE int partner_of(int pass) const { return first_partner + pass % passes_per_head * partners; }
    KFORMER_DEVICE int q_head_of(int pass) const {
      return side == Side::queries ? head : head * a.group + pass / passes_per_head;
    }

    KFORMER_DEVICE void copy_own() const {
      const OperandRows from =
          side == Side::queries ? query_rows(g, tile, head, tile.first) : key_rows(g, tile, head, tile.first);
      copy_rows<rows, features, threads>(own_first, from.first,
                                         side == Side::queries ? a.q.token_stride : a.k.token_stride,
                                         length - tile.first, a.head_dim);
      if constexpr (Tiles::first)
        copy_rows<rows, features, threads>(own_second, from.second,
                                           side == Side::queries ? g.dout.token_stride : a.v.token_stride,
                                           length - tile.first, a.v_head_dim);
    }
    KFORMER_DEVICE OperandRows partner_rows(int pass) const {
      return side == Side::queries ? key_rows(g, tile, head / a.group, partner_of(pass))
                                   : query_rows(g, tile, q_head_of(pass), partner_of(pass));
    }
    KFORMER_DEVICE int partners_left(int pass) const {
      return (side == Side::queries ? tile.kv_len : tile.q_len) - partner_of(pass);
    }
    KFORMER_DEVICE void copy_first(int pass) const {
      if (pass < passes)
        copy_rows<partners, features, threads>(
            partner_first, partner_rows(pass).first,
            opaque(side == Side::queries ? a.k.token_stride : a.q.token_stride), partners_left(pass),
            a.head_dim);
      commit_copies();
    }
    /// And the statistics of the queries that pass by.
    KFORMER_DEVICE void copy_second(int pass) const {
      if (pass < passes) {
        copy_rows<partners, features, threads>(
            partner_second, partner_rows(pass).second,
            opaque(side == Side::queries ? a.v.token_stride : g.dout.token_stride), partners_left(pass),
            a.v_head_dim);
        if constexpr (side == Side::keys) {
          const int i = thread_index();
          if (i < partners)
            store_shared(statistics_at(i), i < partners_left(pass)
                                               ? statistics_of(g, tile, q_head_of(pass), partner_of(pass) + i)
                                               : no_statistics());
        }
      }
      commit_copies();
    }
    KFORMER_DEVICE SharedAddress statistics_at(int partner) const {
      return shared_statistics + partner * static_cast<int>(sizeof(QueryStatistics));
    }

    KFORMER_DEVICE bool pass_partners() {
      copy_own();
      copy_second(0);
      copy_first(0);
      QueryStatistics own[2];
      if constexpr (side == Side::queries) {
        KFORMER_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half)
          own[half] = row_of(half) < length ? statistics_of(g, tile, head, row_of(half)) : no_statistics();
      }
      const Differentiation differentiate(a);
      for (int pass = 0; pass < passes; ++pass) {
        Scores gradient, score;
        wait_copies<1>();
        block_barrier();  // second operands are there
        if constexpr (Tiles::first) multiply(gradient, own_second, partner_second);
        wait_copies<0>();
        block_barrier();  // and the first
        multiply(score, own_first, partner_first);
        const int partner = partner_of(pass);
        const bool hides = last_range.begin > partner || first_range.end < partner + partners;
        // 0 · NaN is not 0.
        if (hides && any_of_block((Tiles::first && partners_not_finite(partner_first)) ||
                                  (Tiles::second && partners_not_finite(partner_second))))
          return false;
        Factor weight, slope;
        finish(differentiate, hides, partner, own, score, gradient, weight, slope);
        if constexpr (Tiles::second) add_product(of_second, weight, partner_second);
        block_barrier();  // the second operands may go
        copy_second(pass + 1);
        if constexpr (Tiles::first) add_product(of_first, slope, partner_first);
        block_barrier();  // and the first
        copy_first(pass + 1);
      }
      wait_copies<0>();
      return true;
    }

    KFORMER_DEVICE void multiply(Scores& result, SharedAddress own, SharedAddress partner) const {
      clear(result);
      const int lane = opaque(this->lane);
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < features / 16; ++k) {
        std::uint32_t x[4];
        load_matrices(x, own + Swizzled<features>::at(16 * warp + lane % 16, 2 * k + lane / 16));
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < partners / 16; ++n) {
          std::uint32_t y[4];
          load_matrices(
              y, partner + Swizzled<features>::at(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
          multiply_add<type>(result[2 * n], x, y[0], y[1]);
          multiply_add<type>(result[2 * n + 1], x, y[2], y[3]);
        }
      }
    }

    /// P and dS, as factors of the products that follow; 0 for pairs that do not meet.
    KFORMER_DEVICE void finish(const Differentiation& differentiate, bool hides, int partner,
                               const QueryStatistics (&own)[2], Scores& score, Scores& gradient, Factor& weight,
                               Factor& slope) const {
      Visible range[2];
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        range[half] = visible_partners<side>(a, tile, row_of(half));
        range[half].begin -= partner, range[half].end -= partner;
      }
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < partners / 8; ++n) {
        KFORMER_DEVICE_UNROLL
        for (int column = 0; column < 2; ++column) {
          const int at = 8 * n + 2 * (lane % 4) + column;
          QueryStatistics passing;
          if constexpr (side == Side::keys) passing = load_shared<QueryStatistics>(statistics_at(at));
          KFORMER_DEVICE_UNROLL
          for (int half = 0; half < 2; ++half) {
            const int i = 2 * half + column;
            PairGradient pair = differentiate(score[n][i], Tiles::first ? gradient[n][i] : 0,
                                              side == Side::queries ? own[half] : passing);
            if (hides && (at < range[half].begin || at >= range[half].end)) pair = {0, 0};
            score[n][i] = pair.weight;
            gradient[n][i] = pair.slope;
          }
        }
        KFORMER_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          weight[n / 2][n % 2 * 2 + half] = pack<type>(score[n][2 * half], score[n][2 * half + 1]);
          slope[n / 2][n % 2 * 2 + half] = pack<type>(gradient[n][2 * half], gradient[n][2 * half + 1]);
        }
      }
    }

    KFORMER_DEVICE void add_product(float (&sum)[features / 8][4], const Factor& factor,
                                    SharedAddress partner) const {
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < partners / 16; ++k) {
        const int lane = opaque(this->lane);
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 16; ++n) {
          std::uint32_t y[4];
          load_matrices_transposed(y, partner + Swizzled<features>::at(16 * k + lane % 16, 2 * n + lane / 16));
          multiply_add<type>(sum[2 * n], factor[k], y[0], y[1]);
          multiply_add<type>(sum[2 * n + 1], factor[k], y[2], y[3]);
        }
      }
    }

    KFORMER_DEVICE static bool partners_not_finite(SharedAddress operand) {
      return copied_not_finite<type, partners, features, threads>(operand);
    }

    KFORMER_DEVICE void store() const {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (row_of(half) >= length) continue;
        const GradientRows to = gradient_rows<side>(g, tile, head, row_of(half));
        if constexpr (Tiles::first) store_row(to.first, of_first, half, a.head_dim, a.scale);
        if constexpr (Tiles::second) store_row(to.second, of_second, half, a.v_head_dim, 1);
      }
    }
    KFORMER_DEVICE void store_row(std::uint16_t* to, const float (&sum)[features / 8][4], int half, int present,
                                  float factor) const {
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < features / 8; ++n) {
        const int feature = 8 * n + 2 * (lane % 4);
        const std::uint32_t both = pack<type>(sum[n][2 * half] * factor, sum[n][2 * half + 1] * factor);
        if (feature < present) *reinterpret_cast<std::uint32_t*>(to + feature) = both;
      }
    }
  };
};

}  // namespace kformer::Impl::cuda
