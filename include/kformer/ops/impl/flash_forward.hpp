// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"
#include "kformer/ops/impl/flash.hpp"

/// \file
/// Portable flash attention, forward: one team per tile of queries walks over the tiles of keys with an online
/// softmax. Scores are kept as Sᵀ(key, query), so that the softmax runs down the keys with the queries as
/// lanes.

namespace kformer::Impl {

template <class T, class Scores, class Exec>
struct FlashForward {
  using C = compute_t<T>;
  using Block = RegisterBlock<Exec, C>;
  using Member = TeamMember<Exec>;

  FlashProblem<T, Scores> p;
  HeadArray<T> out;
  Strided<C, 3> lse;
  const T* sinks;  // null for none
  int edge, padded_v, level;
  std::int64_t elements, q_tiles;

  static std::int64_t scratch_elements(const FlashProblem<T, Scores>& p, int edge) {
    const std::int64_t padded_v = padded(p.v_head_dim, Block::cols);
    return edge * (2 * std::int64_t(p.head_dim) + 2 * padded_v + edge + 3) +
           seen_keys_elements<Scores, C>(edge);
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    // The last queries see the most keys: they come first.
    const std::int64_t heads = p.batches * p.q_heads, rank = team.league_rank();
    const std::int64_t b = rank % heads / p.q_heads, h = rank % p.q_heads, hk = h / p.group;
    const auto tile = p.sequences.tile(q_tiles - 1 - rank / heads, edge, true);
    if (tile.count == 0) return;
    const std::int64_t i0 = tile.begin;
    const int rows = tile.count;

    ScratchTiles<C> scratch(team.team_scratch(level).get_shmem_aligned(elements * sizeof(C), 64));
    C* q = scratch.take(p.head_dim * edge);
    C* k = scratch.take(p.head_dim * edge);
    C* v = scratch.take(edge * padded_v);
    C* o = scratch.take(edge * padded_v);
    C* s = scratch.take(edge * edge);
    C* highest = scratch.take(edge);
    C* sum = scratch.take(edge);
    C* rescale = scratch.take(edge);
    SeenKeys* seen = scratch.template take_seen_keys<Scores>(edge);

    load_by_feature<Exec>(team, p.q.at(b, tile.first_query + i0, h), p.q.token_stride, rows, edge, p.head_dim,
                          q);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_v), [&](int i) { o[i] = C(0); });
    // A sink is a score that has been seen before the first key, and has no value.
    const C sink = sinks ? static_cast<C>(sinks[h]) : -Kokkos::Experimental::infinity_v<C>;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge), [&](int i) {
      highest[i] = sink;
      sum[i] = sink == -Kokkos::Experimental::infinity_v<C> ? C(0) : C(1);
    });

    FlashPairs pairs{b, h, tile.first_query, tile.first_key, i0, 0, rows, 0, tile.visibility};
    const KeyRange range = p.keys(pairs, 0, rows);
    for (std::int64_t j0 = range.first / edge * edge; j0 < range.end; j0 += edge) {
      const int cols = static_cast<int>(Kokkos::min<std::int64_t>(edge, tile.visibility.kv_len - j0));
      pairs.j0 = j0;
      pairs.keys = cols;
      if (p.skips(team, pairs)) continue;
      const bool may_hide = p.may_hide(pairs), scaled = !Scores::plain || may_hide;
      const T *keys = p.k.at(b, tile.first_key + j0, hk), *values = p.v.at(b, tile.first_key + j0, hk);
      team.team_barrier();
      load_by_feature<Exec>(team, keys, p.k.token_stride, cols, edge, p.head_dim, k);
      load_by_token<Exec>(team, values, p.v.token_stride, cols, p.v_head_dim, padded_v, v);
      p.find_seen_keys(team, pairs, seen);
      team.team_barrier();
      tile_product<Exec, false>(team, edge, edge, p.head_dim, k, edge, q, edge, s, edge);
      team.team_barrier();
      if (scaled) finish_scores(team, pairs, seen, s);
      softmax(team, cols, scaled ? C(1) : p.scale, s, highest, sum, rescale);
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, edge), [&](int i) {
        const C factor = rescale[i];
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, padded_v),
                             [&](int d) { o[i * padded_v + d] *= factor; });
      });
      team.team_barrier();
      hiding_product<Exec>(team, may_hide, edge, padded_v, cols, s, edge, v, padded_v, o, padded_v);
    }
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      // A query that saw nothing has sum 0: out is 0, lse is −∞.
      const C divisor = sum[i] == C(0) ? C(1) : sum[i];
      T* to = out.at(b, tile.first_query + i0 + i, h);
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, p.v_head_dim),
                           [&](int d) { to[d] = T(o[i * padded_v + d] / divisor); });
      Kokkos::single(Kokkos::PerThread(team),
                     [&] { lse(b, h, tile.first_query + i0 + i) = highest[i] + Kokkos::log(sum[i]); });
    });
  }

  // Scales the scores, applies the other terms, and writes −∞ where a query does not see a key.
  KOKKOS_FUNCTION void finish_scores(const Member& team, const FlashPairs& pairs, const SeenKeys* seen,
                                     C* s) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge), [&](int i) {
      const bool exists = i < pairs.queries;
      for (int j = 0; j < pairs.keys; ++j) {
        C& score = s[j * edge + i];
        if (!exists || !p.sees(pairs, seen, i, j))
          score = -Kokkos::Experimental::infinity_v<C>;
        else if constexpr (Scores::plain)
          score *= p.scale;
        else
          score = p.scores.apply(p.scale * score, pairs.at(i, j), pairs.shift());
      }
    });
    team.team_barrier();
  }

  // One step of the online softmax: s becomes exp(scale · s − highest), and `rescale` is the factor on
  // earlier sums.
  KOKKOS_FUNCTION void softmax(const Member& team, int cols, C scale, C* s, C* highest, C* sum,
                               C* rescale) const {
    constexpr int lanes = flash_lanes<Exec, C>;
    const int stride = edge;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge / lanes), [&](int block) {
      const int i0 = block * lanes;
      C most[lanes], total[lanes];
      for (int i = 0; i < lanes; ++i) most[i] = highest[i0 + i];
      for (int j = 0; j < cols; ++j)
        for (int i = 0; i < lanes; ++i) {
          const C score = scale * s[j * stride + i0 + i];
          s[j * stride + i0 + i] = score;
          most[i] = score > most[i] ? score : most[i];
        }
      for (int i = 0; i < lanes; ++i) {
        // −∞ − (−∞) must not arise: a query that has seen nothing yet subtracts 0.
        const C shift = most[i] == -Kokkos::Experimental::infinity_v<C> ? C(0) : most[i];
        rescale[i0 + i] = fast_exp(highest[i0 + i] - shift);
        highest[i0 + i] = most[i];
        most[i] = shift;
        total[i] = C(0);
      }
      for (int j = 0; j < cols; ++j)
        for (int i = 0; i < lanes; ++i) {
          const C weight = fast_exp(s[j * stride + i0 + i] - most[i]);
          s[j * stride + i0 + i] = weight;
          total[i] += weight;
        }
      for (int i = 0; i < lanes; ++i) sum[i0 + i] = sum[i0 + i] * rescale[i0 + i] + total[i];
    });
  }
};

/// Launches forward with scores of any kind.
template <class T, class Scores, class Exec>
void flash_forward(const Exec& exec, const AttentionForward& problem, const Scores& scores) {
  using Kernel = FlashForward<T, Scores, Exec>;
  using C = compute_t<T>;
  const auto p = flash_problem<T>(problem, scores);
  const int edge = flash_tile<Exec, C>([&](int e) { return Kernel::scratch_elements(p, e); });
  const std::int64_t q_tiles = p.sequences.tiles(p.q_len, edge), league = p.batches * p.q_heads * q_tiles;
  if (league == 0) return;
  const std::int64_t elements = Kernel::scratch_elements(p, edge);
  int level = 0;
  const auto policy = flash_policy<Exec, C>(exec, league, elements, level);
  Kokkos::parallel_for("kformer::attention_forward[kokkos]", policy,
                       Kernel{p, heads_of<T>(problem.out), problem.lse.as<C, 3>(),
                              static_cast<const T*>(problem.extras.sinks.data), edge,
                              padded(p.v_head_dim, RegisterBlock<Exec, C>::cols), level, elements, q_tiles});
}

template <class T, class Exec>
void attention_forward_kokkos(const Exec& exec, const AttentionForward& problem) {
  if (has_extra_scores(problem.options, problem.extras))
    flash_forward<T>(exec, problem, extra_scores<T>(problem.options, problem.extras));
  else
    flash_forward<T>(exec, problem, PlainScores{});
}

}  // namespace kformer::Impl
