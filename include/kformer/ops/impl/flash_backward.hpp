// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"
#include "kformer/ops/impl/flash_extra_gradients.hpp"

/// \file
/// Portable flash attention, backward, without atomics: one kernel for δ, one over tiles of keys for dk and dv,
/// one over tiles of queries for dq. Both recompute P = exp(S − lse).

namespace kformer::Impl {

/// dk and dv of one tile of keys, over all queries of all heads of the group that see it. Lanes are keys:
/// S(query, key).
template <class T, class Scores, class Exec>
struct FlashGradientKV {
  using C = compute_t<T>;
  using Block = RegisterBlock<Exec, C>;
  using Member = TeamMember<Exec>;

  FlashGradient<T, Scores> g;
  HeadArray<T> dk, dv;
  int edge, padded_k, padded_v, level;
  std::int64_t elements;

  static std::int64_t scratch_elements(const FlashProblem<T, Scores>& p, int edge) {
    const std::int64_t k = padded(p.head_dim, Block::cols), v = padded(p.v_head_dim, Block::cols);
    return edge *
               (2 * std::int64_t(p.head_dim) + 2 * std::int64_t(p.v_head_dim) + 2 * k + 2 * v + 2 * edge + 2) +
           seen_keys_elements<Scores, C>(edge);
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const FlashProblem<T, Scores>& p = g.p;
    // The first keys are seen by the most queries: they come first.
    const std::int64_t heads = p.batches * p.kv_heads, rank = team.league_rank();
    const std::int64_t b = rank % heads / p.kv_heads, hk = rank % p.kv_heads;
    const auto tile = p.sequences.tile(rank / heads, edge, false);
    if (tile.count == 0) return;
    const std::int64_t j0 = tile.begin, token_kv = tile.first_key + j0;
    const int cols = tile.count;

    ScratchTiles<C> scratch(team.team_scratch(level).get_shmem_aligned(elements * sizeof(C), 64));
    C* k = scratch.take(p.head_dim * edge);         // (feature, key)
    C* v = scratch.take(p.v_head_dim * edge);       // (feature, key)
    C* q = scratch.take(edge * padded_k);           // (query, feature)
    C* q_t = scratch.take(p.head_dim * edge);       // (feature, query)
    C* dout = scratch.take(edge * padded_v);        // (query, feature)
    C* dout_t = scratch.take(p.v_head_dim * edge);  // (feature, query)
    C* sum_k = scratch.take(edge * padded_k);       // (key, feature)
    C* sum_v = scratch.take(edge * padded_v);       // (key, feature)
    C* s = scratch.take(edge * edge);               // (query, key): scores, then probabilities
    C* ds = scratch.take(edge * edge);              // (query, key)
    C* lse = scratch.take(edge);
    C* delta = scratch.take(edge);
    SeenKeys* seen = scratch.template take_seen_keys<Scores>(edge);

    load_by_feature<Exec>(team, p.k.at(b, token_kv, hk), p.k.token_stride, cols, edge, p.head_dim, k);
    load_by_feature<Exec>(team, p.v.at(b, token_kv, hk), p.v.token_stride, cols, edge, p.v_head_dim, v);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_k), [&](int i) { sum_k[i] = C(0); });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_v), [&](int i) { sum_v[i] = C(0); });

    for (std::int64_t h = hk * p.group; h < (hk + 1) * p.group; ++h)
      for (std::int64_t i0 = 0; i0 < tile.visibility.q_len; i0 += edge) {
        const int rows = static_cast<int>(Kokkos::min<std::int64_t>(edge, tile.visibility.q_len - i0));
        const FlashPairs pairs{b, h, tile.first_query, tile.first_key, i0, j0, rows, cols, tile.visibility};
        if (p.skips(team, pairs)) continue;
        const bool may_hide = p.may_hide(pairs);
        const std::int64_t token_q = tile.first_query + i0;
        const T *queries = p.q.at(b, token_q, h), *gradients = g.dout.at(b, token_q, h);
        team.team_barrier();
        load_by_token<Exec>(team, queries, p.q.token_stride, rows, p.head_dim, padded_k, q);
        load_by_feature<Exec>(team, queries, p.q.token_stride, rows, edge, p.head_dim, q_t);
        load_by_token<Exec>(team, gradients, g.dout.token_stride, rows, p.v_head_dim, padded_v, dout);
        load_by_feature<Exec>(team, gradients, g.dout.token_stride, rows, edge, p.v_head_dim, dout_t);
        g.template load_statistics<Exec>(team, b, h, token_q, rows, edge, lse, delta);
        p.find_seen_keys(team, pairs, seen);
        team.team_barrier();
        tile_product<Exec, false>(team, edge, edge, p.head_dim, q_t, edge, k, edge, s, edge);
        tile_product<Exec, false>(team, edge, edge, p.v_head_dim, dout_t, edge, v, edge, ds, edge);
        team.team_barrier();
        g.template differentiate<Exec, GradientOf::keys>(team, may_hide, pairs, seen, edge, s, ds, lse, delta);
        team.team_barrier();
        hiding_product<Exec>(team, may_hide, edge, padded_v, rows, s, edge, dout, padded_v, sum_v, padded_v);
        hiding_product<Exec>(team, may_hide, edge, padded_k, rows, ds, edge, q, padded_k, sum_k, padded_k);
      }
    team.team_barrier();
    store_tokens<Exec>(team, sum_k, cols, p.head_dim, padded_k, p.scale, dk.at(b, token_kv, hk),
                       dk.token_stride);
    store_tokens<Exec>(team, sum_v, cols, p.v_head_dim, padded_v, C(1), dv.at(b, token_kv, hk),
                       dv.token_stride);
  }
};

/// dq of one tile of queries, over all keys it sees. Lanes are queries: Sᵀ(key, query).
template <class T, class Scores, class Exec>
struct FlashGradientQ {
  using C = compute_t<T>;
  using Block = RegisterBlock<Exec, C>;
  using Member = TeamMember<Exec>;

  FlashGradient<T, Scores> g;
  HeadArray<T> dq;
  int edge, padded_k, level;
  std::int64_t elements, q_tiles;

  static std::int64_t scratch_elements(const FlashProblem<T, Scores>& p, int edge) {
    const std::int64_t k = padded(p.head_dim, Block::cols);
    return edge * (2 * std::int64_t(p.head_dim) + 2 * std::int64_t(p.v_head_dim) + 2 * k + 2 * edge + 2) +
           seen_keys_elements<Scores, C>(edge);
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const FlashProblem<T, Scores>& p = g.p;
    const std::int64_t heads = p.batches * p.q_heads, rank = team.league_rank();
    const std::int64_t b = rank % heads / p.q_heads, h = rank % p.q_heads, hk = h / p.group;
    const auto tile = p.sequences.tile(q_tiles - 1 - rank / heads, edge, true);
    if (tile.count == 0) return;
    const std::int64_t i0 = tile.begin, token_q = tile.first_query + i0;
    const int rows = tile.count;

    ScratchTiles<C> scratch(team.team_scratch(level).get_shmem_aligned(elements * sizeof(C), 64));
    C* q = scratch.take(p.head_dim * edge);       // (feature, query)
    C* dout = scratch.take(p.v_head_dim * edge);  // (feature, query)
    C* k = scratch.take(edge * padded_k);         // (key, feature)
    C* k_t = scratch.take(p.head_dim * edge);     // (feature, key)
    C* v = scratch.take(p.v_head_dim * edge);     // (feature, key)
    C* sum = scratch.take(edge * padded_k);       // (query, feature)
    C* s = scratch.take(edge * edge);             // (key, query)
    C* ds = scratch.take(edge * edge);            // (key, query)
    C* lse = scratch.take(edge);
    C* delta = scratch.take(edge);
    SeenKeys* seen = scratch.template take_seen_keys<Scores>(edge);

    load_by_feature<Exec>(team, p.q.at(b, token_q, h), p.q.token_stride, rows, edge, p.head_dim, q);
    load_by_feature<Exec>(team, g.dout.at(b, token_q, h), g.dout.token_stride, rows, edge, p.v_head_dim, dout);
    g.template load_statistics<Exec>(team, b, h, token_q, rows, edge, lse, delta);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_k), [&](int i) { sum[i] = C(0); });

    FlashPairs pairs{b, h, tile.first_query, tile.first_key, i0, 0, rows, 0, tile.visibility};
    const KeyRange range = p.keys(pairs, 0, rows);
    for (std::int64_t j0 = range.first / edge * edge; j0 < range.end; j0 += edge) {
      const int cols = static_cast<int>(Kokkos::min<std::int64_t>(edge, tile.visibility.kv_len - j0));
      pairs.j0 = j0;
      pairs.keys = cols;
      if (p.skips(team, pairs)) continue;
      const bool may_hide = p.may_hide(pairs);
      const T *keys = p.k.at(b, tile.first_key + j0, hk), *values = p.v.at(b, tile.first_key + j0, hk);
      team.team_barrier();
      load_by_token<Exec>(team, keys, p.k.token_stride, cols, p.head_dim, padded_k, k);
      load_by_feature<Exec>(team, keys, p.k.token_stride, cols, edge, p.head_dim, k_t);
      load_by_feature<Exec>(team, values, p.v.token_stride, cols, edge, p.v_head_dim, v);
      p.find_seen_keys(team, pairs, seen);
      team.team_barrier();
      tile_product<Exec, false>(team, edge, edge, p.head_dim, k_t, edge, q, edge, s, edge);
      tile_product<Exec, false>(team, edge, edge, p.v_head_dim, v, edge, dout, edge, ds, edge);
      team.team_barrier();
      g.template differentiate<Exec, GradientOf::queries>(team, may_hide, pairs, seen, edge, s, ds, lse, delta);
      team.team_barrier();
      hiding_product<Exec>(team, may_hide, edge, padded_k, cols, ds, edge, k, padded_k, sum, padded_k);
    }
    team.team_barrier();
    store_tokens<Exec>(team, sum, rows, p.head_dim, padded_k, p.scale, dq.at(b, token_q, h), dq.token_stride);
  }
};

inline std::size_t attention_backward_workspace(const AttentionBackward& p) {
  return static_cast<std::size_t>(p.lse.size()) * size_of(compute_dtype(p.q.dtype));
}

/// Launches dk, dv and dq with scores of any kind; δ has been computed.
template <class T, class Scores, class Exec>
void flash_gradients(const Exec& exec, const AttentionBackward& problem, const FlashGradient<T, Scores>& g) {
  using C = compute_t<T>;
  using KernelKV = FlashGradientKV<T, Scores, Exec>;
  using KernelQ = FlashGradientQ<T, Scores, Exec>;
  const FlashProblem<T, Scores>& p = g.p;
  const int padded_k = padded(p.head_dim, RegisterBlock<Exec, C>::cols);
  const int padded_v = padded(p.v_head_dim, RegisterBlock<Exec, C>::cols);
  int level = 0;
  const int kv_edge = flash_tile<Exec, C>([&](int e) { return KernelKV::scratch_elements(p, e); });
  const std::int64_t kv_tiles = p.sequences.tiles(p.kv_len, kv_edge);
  if (const std::int64_t league = p.batches * p.kv_heads * kv_tiles; league > 0) {
    const std::int64_t elements = KernelKV::scratch_elements(p, kv_edge);
    const auto policy = flash_policy<Exec, C>(exec, league, elements, level);
    Kokkos::parallel_for("kformer::attention_backward_kv[kokkos]", policy,
                         KernelKV{g, heads_of<T>(problem.dk), heads_of<T>(problem.dv), kv_edge, padded_k,
                                  padded_v, level, elements});
  }
  const int q_edge = flash_tile<Exec, C>([&](int e) { return KernelQ::scratch_elements(p, e); });
  const std::int64_t q_tiles = p.sequences.tiles(p.q_len, q_edge);
  if (const std::int64_t league = p.batches * p.q_heads * q_tiles; league > 0) {
    const std::int64_t elements = KernelQ::scratch_elements(p, q_edge);
    const auto policy = flash_policy<Exec, C>(exec, league, elements, level);
    Kokkos::parallel_for("kformer::attention_backward_q[kokkos]", policy,
                         KernelQ{g, heads_of<T>(problem.dq), q_edge, padded_k, level, elements, q_tiles});
  }
}

/// Launches backward with scores of any kind.
template <class T, class Scores, class Exec>
void flash_backward(const Exec& exec, const AttentionBackward& problem, const Scores& scores,
                    const Workspace& workspace) {
  using C = compute_t<T>;
  auto* delta = static_cast<C*>(workspace.data);
  attention_delta<T>(exec, problem, delta);
  const FlashGradient<T, Scores> g{flash_problem<T>(problem, scores), heads_of<const T>(problem.dout),
                                   problem.lse.as<const C, 3>(), delta};
  flash_gradients(exec, problem, g);
  if constexpr (!Scores::plain)
    if (problem.gradients.dbias.present()) flash_bias_gradient(exec, g, problem.gradients.dbias);
  if (problem.gradients.dsinks.present()) flash_sink_gradient<T>(exec, problem, delta);
}

template <class T, class Exec>
void attention_backward_kokkos(const Exec& exec, const AttentionBackward& problem, const Workspace& workspace) {
  if (has_extra_scores(problem.options, problem.extras))
    flash_backward<T>(exec, problem, extra_scores<T>(problem.options, problem.extras), workspace);
  else
    flash_backward<T>(exec, problem, PlainScores{}, workspace);
}

}  // namespace kformer::Impl
