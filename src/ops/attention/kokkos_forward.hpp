// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"
#include "ops/attention/flash.hpp"

/// \file
/// Portable flash attention, forward: one team per tile of queries walks over the tiles of keys with an online
/// softmax. Scores are kept as Sᵀ(key, query), so that the softmax runs down the keys with the queries as
/// lanes.

namespace kformer::Impl {

template <class T, class Exec>
struct FlashForward {
  using C = compute_t<T>;
  using Block = RegisterBlock<Exec, C>;
  using Member = TeamMember<Exec>;

  FlashProblem<T> p;
  Heads<T> out;
  Strided<C, 3> lse;
  int edge, padded_v, level;
  std::int64_t elements, q_tiles;

  static std::int64_t scratch_elements(const FlashProblem<T>& p, int edge) {
    const std::int64_t padded_v = padded(p.v_head_dim, Block::cols);
    return edge * (2 * std::int64_t(p.head_dim) + 2 * padded_v + edge + 3);
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    // The last queries see the most keys: they come first.
    const std::int64_t heads = p.batches * p.q_heads, rank = team.league_rank();
    const std::int64_t tile = q_tiles - 1 - rank / heads, b = rank % heads / p.q_heads, h = rank % p.q_heads;
    const std::int64_t hk = h / p.group, i0 = tile * edge;
    const int rows = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.q_len - i0));

    ScratchTiles<C> scratch(team.team_scratch(level).get_shmem_aligned(elements * sizeof(C), 64));
    C* q = scratch.take(p.head_dim * edge);
    C* k = scratch.take(p.head_dim * edge);
    C* v = scratch.take(edge * padded_v);
    C* o = scratch.take(edge * padded_v);
    C* s = scratch.take(edge * edge);
    C* highest = scratch.take(edge);
    C* sum = scratch.take(edge);
    C* rescale = scratch.take(edge);

    load_by_feature<Exec>(team, p.q.at(b, i0, h), p.q.token_stride, rows, edge, p.head_dim, q);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_v), [&](int i) { o[i] = C(0); });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge), [&](int i) {
      highest[i] = -Kokkos::Experimental::infinity_v<C>;
      sum[i] = C(0);
    });

    const std::int64_t begin = p.visibility.first(i0) / edge * edge, end = p.visibility.end(i0 + rows - 1);
    for (std::int64_t j0 = begin; j0 < end; j0 += edge) {
      const int cols = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.kv_len - j0));
      const bool at_edge =
          p.masked || j0 < p.visibility.first(i0 + rows - 1) || j0 + cols > p.visibility.end(i0);
      team.team_barrier();
      load_by_feature<Exec>(team, p.k.at(b, j0, hk), p.k.token_stride, cols, edge, p.head_dim, k);
      load_by_token<Exec>(team, p.v.at(b, j0, hk), p.v.token_stride, cols, p.v_head_dim, padded_v, v);
      team.team_barrier();
      tile_product<Exec, false>(team, edge, edge, p.head_dim, k, edge, q, edge, s, edge);
      team.team_barrier();
      if (at_edge) hide(team, b, h, i0, j0, rows, cols, s);
      softmax(team, cols, at_edge ? C(1) : p.scale, s, highest, sum, rescale);
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, edge), [&](int i) {
        const C factor = rescale[i];
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, padded_v),
                             [&](int d) { o[i * padded_v + d] *= factor; });
      });
      team.team_barrier();
      hiding_product<Exec>(team, at_edge, edge, padded_v, cols, s, edge, v, padded_v, o, padded_v);
    }
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      // A query that saw nothing has sum 0: out is 0, lse is −∞.
      const C divisor = sum[i] == C(0) ? C(1) : sum[i];
      T* to = out.at(b, i0 + i, h);
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, p.v_head_dim),
                           [&](int d) { to[d] = T(o[i * padded_v + d] / divisor); });
      Kokkos::single(Kokkos::PerThread(team), [&] { lse(b, h, i0 + i) = highest[i] + Kokkos::log(sum[i]); });
    });
  }

  // Puts −∞ where a query does not see a key; scales the score and adds the mask elsewhere.
  KOKKOS_FUNCTION void hide(const Member& team, std::int64_t b, std::int64_t h, std::int64_t i0,
                            std::int64_t j0, int rows, int cols, C* s) const {
    const C hidden = -Kokkos::Experimental::infinity_v<C>;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge), [&](int i) {
      const std::int64_t first = p.visibility.first(i0 + i) - j0,
                         last = i < rows ? p.visibility.end(i0 + i) - j0 : 0;
      for (int j = 0; j < cols; ++j) {
        const C added = j >= first && j < last ? p.added(b, h, i0 + i, j0 + j) : hidden;
        s[j * edge + i] = added == hidden ? hidden : p.scale * s[j * edge + i] + added;
      }
    });
    team.team_barrier();
  }

  // One step of the online softmax: s becomes exp(scale · s − highest), and what was summed before shrinks by
  // `rescale`. At an edge `hide` has scaled already.
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

template <class T, class Exec>
void attention_forward_kokkos(const Exec& exec, const AttentionForward& problem) {
  using Kernel = FlashForward<T, Exec>;
  using C = compute_t<T>;
  const FlashProblem<T> p = flash_problem<T>(problem);
  const int edge = flash_tile<Exec, C>([&](int e) { return Kernel::scratch_elements(p, e); });
  const std::int64_t q_tiles = ceil_div<std::int64_t>(p.q_len, edge), league = p.batches * p.q_heads * q_tiles;
  if (league == 0) return;
  const std::int64_t elements = Kernel::scratch_elements(p, edge);
  int level = 0;
  const auto policy = flash_policy<Exec, C>(exec, league, elements, level);
  Kokkos::parallel_for("kformer::attention_forward[kokkos]", policy,
                       Kernel{p, heads_of<T>(problem.out), problem.lse.as<C, 3>(), edge,
                              padded(p.v_head_dim, RegisterBlock<Exec, C>::cols), level, elements, q_tiles});
}

}  // namespace kformer::Impl
