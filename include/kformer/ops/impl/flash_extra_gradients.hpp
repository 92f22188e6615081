// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/flash_gradient.hpp"

/// \file
/// Portable gradients of attention's optional operands, without atomics: each tile of a bias and each sink is
/// summed by one team in a fixed order.

namespace kformer::Impl {

/// dbias of one tile of the bias, summed over the batches, heads and queries that share it. S(query, key)
/// is recomputed as for dk.
template <class T, class Scores, class Exec>
struct FlashBiasGradient {
  using C = compute_t<T>;
  using Member = TeamMember<Exec>;

  FlashGradient<T, Scores> g;
  Strided<T, 4> dbias;
  bool over_batches, over_heads, over_queries;  ///< whether an extent of 1 broadcasts
  int edge, level;
  std::int64_t elements, q_tiles, kv_tiles;

  static std::int64_t scratch_elements(const FlashProblem<T, Scores>& p, int edge) {
    return edge * (2 * std::int64_t(p.head_dim) + 2 * std::int64_t(p.v_head_dim) + 3 * edge + 2) +
           seen_keys_elements<Scores, C>(edge);
  }
  // Not in flash_bias_gradient: nvcc 13 fails on a lambda there.
  static int tile_edge(const FlashProblem<T, Scores>& p) {
    return flash_tile<Exec, C>([&](int e) { return scratch_elements(p, e); });
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const FlashProblem<T, Scores>& p = g.p;
    const std::int64_t rank = team.league_rank(), b = rank / kv_tiles / q_tiles / dbias.extent[1],
                       h = rank / kv_tiles / q_tiles % dbias.extent[1];
    const std::int64_t i0 = rank / kv_tiles % q_tiles * edge, j0 = rank % kv_tiles * edge;
    const int cols = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.kv_len - j0));

    ScratchTiles<C> scratch(team.team_scratch(level).get_shmem_aligned(elements * sizeof(C), 64));
    Tiles tiles;
    tiles.k = scratch.take(p.head_dim * edge);
    tiles.v = scratch.take(p.v_head_dim * edge);
    tiles.q = scratch.take(p.head_dim * edge);
    tiles.dout = scratch.take(p.v_head_dim * edge);
    tiles.s = scratch.take(edge * edge);
    tiles.ds = scratch.take(edge * edge);
    tiles.lse = scratch.take(edge);
    tiles.delta = scratch.take(edge);
    C* sum = scratch.take(edge * edge);  // (query, key)
    tiles.seen = scratch.template take_seen_keys<Scores>(edge);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * edge), [&](int n) { sum[n] = C(0); });

    const std::int64_t b_end = over_batches ? p.batches : b + 1, h_end = over_heads ? p.q_heads : h + 1;
    const std::int64_t i_end = over_queries ? p.q_len : Kokkos::min<std::int64_t>(i0 + edge, p.q_len);
    for (std::int64_t bb = b; bb < b_end; ++bb)
      for (std::int64_t hh = h; hh < h_end; ++hh)
        for (std::int64_t i = i0; i < i_end; i += edge) {
          const int rows = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.q_len - i));
          const FlashPairs pairs{bb, hh, 0, 0, i, j0, rows, cols, p.sequences.whole};
          if (p.skips(team, pairs)) continue;
          add(team, pairs, tiles, sum);
        }
    team.team_barrier();
    if (over_queries)
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, cols), [&](int j) {
        C total = 0;
        for (int i = 0; i < edge; ++i) total += sum[i * edge + j];
        dbias(b, h, 0, j0 + j) = T(total);
      });
    else
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(i_end - i0)), [&](int i) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols),
                             [&](int j) { dbias(b, h, i0 + i, j0 + j) = T(sum[i * edge + j]); });
      });
  }

 private:
  struct Tiles {
    C *k, *v, *q, *dout;  // (feature, key) and (feature, query)
    C *s, *ds;            // (query, key)
    C *lse, *delta;
    SeenKeys* seen;
  };

  // Adds dS of the pairs to `sum`.
  KOKKOS_FUNCTION void add(const Member& team, const FlashPairs& pairs, const Tiles& t, C* sum) const {
    const FlashProblem<T, Scores>& p = g.p;
    const std::int64_t b = pairs.batch, h = pairs.head, hk = h / p.group, i0 = pairs.i0, j0 = pairs.j0;
    const int rows = pairs.queries, cols = pairs.keys;
    team.team_barrier();
    load_by_feature<Exec>(team, p.k.at(b, j0, hk), p.k.token_stride, cols, edge, p.head_dim, t.k);
    load_by_feature<Exec>(team, p.v.at(b, j0, hk), p.v.token_stride, cols, edge, p.v_head_dim, t.v);
    load_by_feature<Exec>(team, p.q.at(b, i0, h), p.q.token_stride, rows, edge, p.head_dim, t.q);
    load_by_feature<Exec>(team, g.dout.at(b, i0, h), g.dout.token_stride, rows, edge, p.v_head_dim, t.dout);
    g.template load_statistics<Exec>(team, b, h, i0, rows, edge, t.lse, t.delta);
    p.find_seen_keys(team, pairs, t.seen);
    team.team_barrier();
    tile_product<Exec, false>(team, edge, edge, p.head_dim, t.q, edge, t.k, edge, t.s, edge);
    tile_product<Exec, false>(team, edge, edge, p.v_head_dim, t.dout, edge, t.v, edge, t.ds, edge);
    team.team_barrier();
    g.template differentiate<Exec, GradientOf::bias>(team, true, pairs, t.seen, edge, t.s, t.ds, t.lse,
                                                     t.delta);
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols),
                           [&](int j) { sum[i * edge + j] += t.ds[i * edge + j]; });
    });
  }
};

/// dbias = Σ dS over the extents that the bias broadcasts, times the derivative by the bias.
template <class T, class Scores, class Exec>
void flash_bias_gradient(const Exec& exec, const FlashGradient<T, Scores>& g, const TensorRef& dbias) {
  using C = compute_t<T>;
  using Kernel = FlashBiasGradient<T, Scores, Exec>;
  const FlashProblem<T, Scores>& p = g.p;
  const bool over_batches = dbias.extent[0] == 1 && p.batches != 1,
             over_heads = dbias.extent[1] == 1 && p.q_heads != 1,
             over_queries = dbias.extent[2] == 1 && p.q_len != 1;
  const int edge = Kernel::tile_edge(p);
  const std::int64_t q_tiles = ceil_div<std::int64_t>(dbias.extent[2], edge),
                     kv_tiles = ceil_div<std::int64_t>(p.kv_len, edge);
  const std::int64_t league = dbias.extent[0] * dbias.extent[1] * q_tiles * kv_tiles;
  if (league == 0) return;
  const std::int64_t elements = Kernel::scratch_elements(p, edge);
  int level = 0;
  const auto policy = flash_policy<Exec, C>(exec, league, elements, level);
  Kokkos::parallel_for("kformer::attention_backward_bias[kokkos]", policy,
                       Kernel{g, dbias.as<T, 4>(), over_batches, over_heads, over_queries, edge, level,
                              elements, q_tiles, kv_tiles});
}

/// dsink −= Σ exp(sink − lse) · δ.
template <class T, class Exec>
void flash_sink_gradient(const Exec& exec, const AttentionBackward& problem, const compute_t<T>* delta) {
  using C = compute_t<T>;
  const auto sinks = problem.extras.sinks.as<const T, 1>();
  const auto dsinks = problem.gradients.dsinks.as<C, 1>();
  const auto lse = problem.lse.as<const C, 3>();
  const std::int64_t batches = lse.extent[0], heads = lse.extent[1], q_len = lse.extent[2];
  const C none = -Kokkos::Experimental::infinity_v<C>;
  if (heads == 0) return;
  Kokkos::parallel_for(
      "kformer::attention_backward_sinks[kokkos]", team_policy(exec, heads, q_len),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t h = team.league_rank();
        const C sink = static_cast<C>(sinks(h));
        if (sink == none) return;
        C total = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, batches * q_len),
            [&](std::int64_t n, C& sum) {
              const std::int64_t b = n / q_len, i = n % q_len;
              sum += fast_exp(sink - lse(b, h, i)) * delta[(b * heads + h) * q_len + i];
            },
            total);
        Kokkos::single(Kokkos::PerTeam(team), [&] { dsinks(h) -= total; });
      });
}

}  // namespace kformer::Impl
