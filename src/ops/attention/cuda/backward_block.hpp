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
/// and v; then the gradient of what is owned is dS · partner of q or k, and P · dout of v. A warp has 16 ·
/// `row_tiles` rows, and what it reads of the partners enters the products of all of them. Partners pass through
/// two stages of shared memory: those of the next pass are copied during the products of this one.
///
/// Here is what these kernels share, whatever numbers tensor cores multiply.

namespace kformer::Impl::cuda {

/// Of tiles: `row_tiles` times 16 rows per warp, `partners` per pass.
struct BackwardShape {
  int warps, row_tiles, partners, blocks_per_multiprocessor;
  bool operator==(const BackwardShape&) const = default;
};

/// Whether tiles for `memory` run on a machine: those for the small one do everywhere.
constexpr bool runs_with(SharedMemory memory, const Machine& m) {
  return memory == SharedMemory::small || shared_memory(m) == memory;
}

/// The operands of a pair in shared memory.
struct SharedOperands {
  SharedAddress first, second;
};

/// What a thread has of its block: gradients in the fragments of its warp.
template <class Tiles, class Stored>
struct BackwardBlock {
  static constexpr Side side = Tiles::side;
  static constexpr int features = Tiles::features, warps = Tiles::warps, row_tiles = Tiles::row_tiles,
                       partners = Tiles::partners, rows = Tiles::rows, threads = 32 * warps;
  using Tile = TileOf<Stored, features>;
  static constexpr int own_bytes = rows * Tile::row_bytes, partner_bytes = partners * Tile::row_bytes;
  static constexpr int stages = 2, queries = side == Side::queries ? rows : partners,
                       statistics_bytes = queries * int(sizeof(QueryStatistics));
  static constexpr int stage_bytes = 2 * partner_bytes + (side == Side::keys ? statistics_bytes : 0);
  static constexpr int shared_bytes = (Tiles::first ? 2 : 1) * own_bytes + stages * stage_bytes +
                                      (side == Side::queries ? statistics_bytes : 0);
  static_assert(queries <= threads);

  using Scores = float[row_tiles][partners / 8][4];
  template <bool wanted>
  using Sums = float[wanted ? row_tiles : 1][wanted ? features / 8 : 1][4];

  /// Partners from `partner` on, and the queries' head, in one stage of shared memory.
  struct Pass {
    int q_head, partner, stage;
  };

  const GradientArgumentsOf<Stored>& g;
  const AttentionArgumentsOf<Stored>& a;
  const QueryTile& tile;
  int head, kv_head, lane, warp, length;
  int first_partner, end_partner;
  SharedOperands own;
  Sums<Tiles::first> of_first;
  Sums<Tiles::second> of_second;

  KFORMER_DEVICE BackwardBlock(const GradientArgumentsOf<Stored>& arguments, const QueryTile& of_tile,
                               int of_head)
      : g(arguments),
        a(arguments.a),
        tile(of_tile),
        head(of_head),
        kv_head(side == Side::queries ? of_head / arguments.a.group : of_head),
        lane(thread_index() % 32),
        warp(thread_index() / 32),
        length(owned_length<side>(of_tile)) {
    own.first = shared_begin() + stages * stage_bytes;
    own.second = own.first + own_bytes;
    const int last = (tile.first + rows < length ? tile.first + rows : length) - 1;
    const Visible first_range = visible_partners<side>(a, tile, tile.first),
                  last_range = visible_partners<side>(a, tile, last);
    first_partner = first_range.begin / partners * partners;
    end_partner = last_range.end;
    clear(of_first);
    clear(of_second);
  }

  KFORMER_DEVICE int first_row(int m) const { return (warp * row_tiles + m) * 16; }
  KFORMER_DEVICE int row_of(int m, int half) const { return tile.first + first_row(m) + lane / 4 + 8 * half; }
  KFORMER_DEVICE Pass first_pass() const {
    return {side == Side::queries ? head : head * a.group, first_partner, 0};
  }
  KFORMER_DEVICE Pass after(Pass pass) const {
    pass.stage = (pass.stage + 1) % stages;
    pass.partner += partners;
    if (side == Side::keys && pass.partner >= end_partner) pass.partner = first_partner, ++pass.q_head;
    return pass;
  }
  KFORMER_DEVICE bool is_there(const Pass& pass) const {
    return side == Side::queries ? pass.partner < end_partner : pass.q_head < (head + 1) * a.group;
  }

  KFORMER_DEVICE void copy_own() const {
    const OperandRows<Stored> from =
        side == Side::queries ? query_rows(g, tile, head, tile.first) : key_rows(g, tile, head, tile.first);
    copy_rows<rows, features, threads>(own.first, from.first,
                                       side == Side::queries ? a.q.token_stride : a.k.token_stride,
                                       length - tile.first, a.head_dim);
    if constexpr (Tiles::first)
      copy_rows<rows, features, threads>(own.second, from.second,
                                         side == Side::queries ? g.dout.token_stride : a.v.token_stride,
                                         length - tile.first, a.v_head_dim);
  }
  KFORMER_DEVICE OperandRows<Stored> partner_rows(const Pass& pass) const {
    return side == Side::queries ? key_rows(g, tile, kv_head, pass.partner)
                                 : query_rows(g, tile, pass.q_head, pass.partner);
  }
  KFORMER_DEVICE int partners_left(const Pass& pass) const {
    return (side == Side::queries ? tile.kv_len : tile.q_len) - pass.partner;
  }
  KFORMER_DEVICE SharedOperands stage_of(const Pass& pass) const {
    const SharedAddress begin = shared_begin() + pass.stage * stage_bytes;
    return {begin, begin + partner_bytes};
  }
  /// Of query `query` among the pairs of a pass.
  KFORMER_DEVICE SharedAddress statistics_at(const Pass& pass, int query) const {
    const SharedAddress begin =
        side == Side::queries ? own.second + own_bytes : stage_of(pass).second + partner_bytes;
    return begin + query * static_cast<int>(sizeof(QueryStatistics));
  }
  KFORMER_DEVICE void copy_partners(const Pass& pass) const {
    if (!is_there(pass)) return;
    const SharedOperands to = stage_of(pass);
    const OperandRows<Stored> from = partner_rows(pass);
    copy_rows<partners, features, threads>(to.first, from.first,
                                           opaque(side == Side::queries ? a.k.token_stride : a.q.token_stride),
                                           partners_left(pass), a.head_dim);
    copy_rows<partners, features, threads>(
        to.second, from.second, opaque(side == Side::queries ? a.v.token_stride : g.dout.token_stride),
        partners_left(pass), a.v_head_dim);
    commit_copies();
  }
  /// Of the query that this thread puts into shared memory for a pass, if there is one.
  KFORMER_DEVICE QueryStatistics load_statistics(const Pass& pass) const {
    const int i = thread_index(), first = side == Side::queries ? tile.first : pass.partner;
    return is_there(pass) && i < queries && i < tile.q_len - first
               ? statistics_of(g, tile, pass.q_head, first + i)
               : no_statistics();
  }
  KFORMER_DEVICE void store_statistics(const Pass& pass, const QueryStatistics& statistics) const {
    if (thread_index() < queries) store_shared(statistics_at(pass, thread_index()), statistics);
  }

  /// All partners that the tile meets. `products.multiply(result, own, partners, present)` makes the scores of a
  /// pass, or their gradients; `products.spoils(partners)`, of a pass with hidden pairs, ends it with false;
  /// `products.add(score, gradient, partners, meanwhile)` adds to the gradients, and calls `meanwhile()` before
  /// its products.
  template <class Products>
  KFORMER_DEVICE bool pass_partners(Products& products) const {
    if (first_partner >= end_partner || !is_there(first_pass())) return true;
    copy_own();
    Pass pass = first_pass();
    copy_partners(pass);
    store_statistics(pass, load_statistics(pass));
    const Differentiation differentiate(a);
    for (; is_there(pass); pass = after(pass)) {
      wait_copies<0>();
      block_barrier();  // these partners have arrived, and no warp reads the other stage any more
      copy_partners(after(pass));
      const SharedOperands stage = stage_of(pass);
      Scores gradient, score;
      if constexpr (Tiles::first) products.multiply(gradient, own.second, stage.second, a.v_head_dim);
      products.multiply(score, own.first, stage.first, a.head_dim);
      const bool hides = some_are_apart(pass.partner);
      if (hides && products.spoils(stage)) return wait_copies<0>(), false;
      if (differentiate.caps())
        finish<true>(differentiate, pass, score, gradient);
      else
        finish<false>(differentiate, pass, score, gradient);
      if (hides) hide_apart(score, gradient, pass.partner);
      QueryStatistics next;
      products.add(score, gradient, stage, [&] {
        if constexpr (side == Side::keys) next = load_statistics(after(pass));
      });
      if constexpr (side == Side::keys) store_statistics(after(pass), next);
    }
    return true;
  }

  /// Whether some row does not meet some of the partners from this one on.
  KFORMER_DEVICE bool some_are_apart(int partner) const {
    const int first = opaque(tile.first), last = (first + rows < length ? first + rows : length) - 1;
    return visible_partners<side>(a, tile, last).begin > partner ||
           visible_partners<side>(a, tile, first).end < partner + partners;
  }

  /// P and dS in the places of S and dP.
  template <bool caps>
  KFORMER_DEVICE void finish(const Differentiation& differentiate, const Pass& pass, Scores& score,
                             Scores& gradient) const {
    const auto differentiate_pair = [&](int m, int n, int i, const QueryStatistics& query) {
      const PairGradient pair =
          differentiate.template of_pair<caps>(score[m][n][i], Tiles::first ? gradient[m][n][i] : 0, query);
      score[m][n][i] = pair.weight;
      gradient[m][n][i] = pair.slope;
    };
    if constexpr (side == Side::queries) {
      KFORMER_DEVICE_UNROLL
      for (int i = 0; i < 2 * row_tiles; ++i) {
        const auto query =
            load_shared<QueryStatistics>(statistics_at(pass, first_row(i / 2) + lane / 4 + 8 * (i % 2)));
        KFORMER_DEVICE_UNROLL
        for (int j = 0; j < partners / 4; ++j) differentiate_pair(i / 2, j / 2, 2 * (i % 2) + j % 2, query);
      }
    } else {
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < partners / 4; ++j) {
        const auto query =
            load_shared<QueryStatistics>(statistics_at(pass, 8 * (j / 2) + 2 * (lane % 4) + j % 2));
        KFORMER_DEVICE_UNROLL
        for (int i = 0; i < 2 * row_tiles; ++i) differentiate_pair(i / 2, j / 2, 2 * (i % 2) + j % 2, query);
      }
    }
  }
  /// 0 for pairs that do not meet.
  KFORMER_DEVICE void hide_apart(Scores& weight, Scores& slope, int partner) const {
    const int row = tile.first + opaque_below<32>(lane) / 4;
    KFORMER_DEVICE_UNROLL
    for (int m = 0; m < row_tiles; ++m) {
      const Visible range[2] = {visible_partners<side>(a, tile, row + first_row(m)),
                                visible_partners<side>(a, tile, row + first_row(m) + 8)};
      hide(weight[m], range, partner, 0);
      hide(slope[m], range, partner, 0);
    }
  }

  /// `put(to, x, y)` stores two numbers of a gradient next to each other.
  template <class Put>
  KFORMER_DEVICE void store(Put put) const {
    KFORMER_DEVICE_UNROLL
    for (int m = 0; m < row_tiles; ++m) {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (row_of(m, half) >= length) continue;
        const GradientRows<Stored> to = gradient_rows<side>(g, tile, head, row_of(m, half));
        if constexpr (Tiles::first) store_row(put, to.first, of_first[m], half, a.head_dim, a.scale);
        if constexpr (Tiles::second) store_row(put, to.second, of_second[m], half, a.v_head_dim, 1);
      }
    }
  }
  template <class Put>
  KFORMER_DEVICE void store_row(Put put, Stored* to, const float (&sum)[features / 8][4], int half, int present,
                                float factor) const {
    KFORMER_DEVICE_UNROLL
    for (int n = 0; n < features / 8; ++n) {
      const int feature = 8 * n + 2 * (lane % 4);
      const float x = sum[n][2 * half] * factor, y = sum[n][2 * half + 1] * factor;
      if (feature < present) put(to + feature, x, y);
    }
  }
};

/// Differentiates the tile of this block by `Block`, or row by row where that fails.
template <class Block, class Tiles, class Numbers>
KFORMER_DEVICE void differentiate_tile(const GradientArgumentsOf<typename Numbers::Stored>& g,
                                       const Sequences& owned) {
  constexpr Side side = Tiles::side;
  const int heads = side == Side::queries ? g.a.q_heads : g.kv_heads;
  const int head = block_index() % heads;
  const QueryTile tile = find_owned_tile<side, Tiles::rows>(owned, block_index() / heads);
  if (owned_length<side>(tile) == 0) return;
  if (!Block(g, tile, head).run())
    differentiate_exactly<Numbers, Tiles::features, side, Tiles::first, Tiles::second>(
        g, tile, head, Tiles::rows, Tiles::warps);
}

/// Launches a kernel of `Tiles` for all that is owned.
template <template <class> class Kernel, class Tiles, class Stored>
void launch_backward(const char* label, Stream stream, const GradientArgumentsOf<Stored>& g,
                     const Sequences& sequences) {
  const bool of_queries = Tiles::side == Side::queries;
  const Sequences owned = owned_first<Tiles::side>(sequences);
  launch(label, stream, most_tiles<Tiles::rows>(owned) * (of_queries ? g.a.q_heads : g.kv_heads),
         Kernel<Tiles>{g, owned});
}

}  // namespace kformer::Impl::cuda
