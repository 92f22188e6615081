// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"
#include "ops/attention/flash.hpp"

/// \file
/// Portable flash attention, backward, without atomics: one kernel for δ, one over tiles of keys for dk and dv,
/// one over tiles of queries for dq. Both recompute P = exp(S − lse).

namespace kformer::Impl {

/// What both gradient kernels know.
template <class T>
struct FlashGradient {
  using C = compute_t<T>;

  FlashProblem<T> p;
  Heads<const T> dout;
  Strided<const C, 3> lse;
  const C* delta;  // (batch, q_heads, q_len)

  /// lse and delta of `rows` queries from `i0`, padded to `edge`. A query that saw nothing gets lse +∞, so that
  /// its probabilities are 0.
  template <class Exec>
  KOKKOS_FUNCTION void load_statistics(const TeamMember<Exec>& team, std::int64_t b, std::int64_t h,
                                       std::int64_t i0, int rows, int edge, C* tile_lse, C* tile_delta) const {
    constexpr C infinity = Kokkos::Experimental::infinity_v<C>;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge), [&](int i) {
      const C saved = i < rows ? lse(b, h, i0 + i) : infinity;
      tile_lse[i] = saved == -infinity ? infinity : saved;
      tile_delta[i] = i < rows ? delta[(b * p.q_heads + h) * p.q_len + i0 + i] : C(0);
    });
  }

  /// In place of scores and of the gradients of probabilities: P = exp(scale · S − lse) and dS = P ∘ (dP − δ),
  /// in a tile whose rows are queries or keys. At an edge, hidden pairs get 0 in both.
  template <class Exec, bool rows_are_queries>
  KOKKOS_FUNCTION void differentiate(const TeamMember<Exec>& team, bool at_edge, std::int64_t b, std::int64_t h,
                                     std::int64_t i0, std::int64_t j0, int queries, int keys, int edge, C* s,
                                     C* ds, const C* tile_lse, const C* tile_delta) const {
    const int rows = rows_are_queries ? queries : keys, columns = rows_are_queries ? keys : queries;
    const auto added = [&](int row, int column) {
      return hide_or_add(b, h, i0 + (rows_are_queries ? row : column), j0 + (rows_are_queries ? column : row));
    };
    constexpr C hidden = -Kokkos::Experimental::infinity_v<C>;
    const C scale = p.masked ? C(1) : p.scale;  // the mask is added to the scaled score
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int row) {
      C* score = s + row * edge;
      C* gradient = ds + row * edge;
      if (p.masked)
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, columns), [&](int column) {
          const C mask = added(row, column);
          if (mask != hidden) score[column] = p.scale * score[column] + mask;
        });
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, edge), [&](int column) {
        const int i = rows_are_queries ? row : column;
        const C probability = fast_exp(scale * score[column] - tile_lse[i]);
        score[column] = probability;
        gradient[column] = probability * (gradient[column] - tile_delta[i]);
      });
      // NaN that hidden keys and blind queries brought along stops here.
      if (at_edge)
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, columns), [&](int column) {
          if (added(row, column) == hidden) score[column] = gradient[column] = C(0);
        });
    });
  }

 private:
  /// What is added to the score of a pair, −∞ if it is hidden by position or by the mask.
  KOKKOS_FUNCTION C hide_or_add(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return p.visibility.sees(i, j) ? p.added(b, h, i, j) : -Kokkos::Experimental::infinity_v<C>;
  }
};

/// delta(b, h, i) = Σ_d dout · out.
template <class T, class Exec>
void attention_delta(const Exec& exec, const AttentionBackward& problem, compute_t<T>* delta) {
  using C = compute_t<T>;
  const auto out = heads_of<const T>(problem.out), dout = heads_of<const T>(problem.dout);
  const std::int64_t q_len = problem.q.extent[1], heads = problem.q.extent[2],
                     rows = problem.q.extent[0] * heads * q_len;
  const int dim = static_cast<int>(problem.v.extent[3]);
  Kokkos::parallel_for(
      "kformer::attention_backward_delta[kokkos]", Kokkos::RangePolicy<Exec>(exec, 0, rows),
      KOKKOS_LAMBDA(std::int64_t row) {
        const std::int64_t i = row % q_len, h = row / q_len % heads, b = row / q_len / heads;
        const T* o = out.at(b, i, h);
        const T* d = dout.at(b, i, h);
        C sum = 0;
        for (int c = 0; c < dim; ++c) sum += static_cast<C>(o[c]) * static_cast<C>(d[c]);
        delta[row] = sum;
      });
}

/// dk and dv of one tile of keys, over all queries of all heads of the group that see it. Lanes are keys:
/// S(query, key).
template <class T, class Exec>
struct FlashGradientKV {
  using C = compute_t<T>;
  using Block = RegisterBlock<Exec, C>;
  using Member = TeamMember<Exec>;

  FlashGradient<T> g;
  Heads<T> dk, dv;
  int edge, padded_k, padded_v, level;
  std::int64_t elements, kv_tiles;

  static std::int64_t scratch_elements(const FlashProblem<T>& p, int edge) {
    const std::int64_t k = padded(p.head_dim, Block::cols), v = padded(p.v_head_dim, Block::cols);
    return edge *
           (2 * std::int64_t(p.head_dim) + 2 * std::int64_t(p.v_head_dim) + 2 * k + 2 * v + 2 * edge + 2);
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const FlashProblem<T>& p = g.p;
    // The first keys are seen by the most queries: they come first.
    const std::int64_t heads = p.batches * p.kv_heads, rank = team.league_rank();
    const std::int64_t j0 = rank / heads * edge, b = rank % heads / p.kv_heads, hk = rank % p.kv_heads;
    const int cols = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.kv_len - j0));

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

    load_by_feature<Exec>(team, p.k.at(b, j0, hk), p.k.token_stride, cols, edge, p.head_dim, k);
    load_by_feature<Exec>(team, p.v.at(b, j0, hk), p.v.token_stride, cols, edge, p.v_head_dim, v);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_k), [&](int i) { sum_k[i] = C(0); });
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_v), [&](int i) { sum_v[i] = C(0); });

    for (std::int64_t h = hk * p.group; h < (hk + 1) * p.group; ++h)
      for (std::int64_t i0 = 0; i0 < p.q_len; i0 += edge) {
        const int rows = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.q_len - i0));
        const std::int64_t last = i0 + rows - 1;
        if (p.visibility.end(last) <= j0 || p.visibility.first(i0) >= j0 + cols) continue;
        const bool at_edge = p.masked || j0 < p.visibility.first(last) || j0 + cols > p.visibility.end(i0);
        team.team_barrier();
        load_by_token<Exec>(team, p.q.at(b, i0, h), p.q.token_stride, rows, p.head_dim, padded_k, q);
        load_by_feature<Exec>(team, p.q.at(b, i0, h), p.q.token_stride, rows, edge, p.head_dim, q_t);
        load_by_token<Exec>(team, g.dout.at(b, i0, h), g.dout.token_stride, rows, p.v_head_dim, padded_v, dout);
        load_by_feature<Exec>(team, g.dout.at(b, i0, h), g.dout.token_stride, rows, edge, p.v_head_dim, dout_t);
        g.template load_statistics<Exec>(team, b, h, i0, rows, edge, lse, delta);
        team.team_barrier();
        tile_product<Exec, false>(team, edge, edge, p.head_dim, q_t, edge, k, edge, s, edge);
        tile_product<Exec, false>(team, edge, edge, p.v_head_dim, dout_t, edge, v, edge, ds, edge);
        team.team_barrier();
        g.template differentiate<Exec, true>(team, at_edge, b, h, i0, j0, rows, cols, edge, s, ds, lse, delta);
        team.team_barrier();
        hiding_product<Exec>(team, at_edge, edge, padded_v, rows, s, edge, dout, padded_v, sum_v, padded_v);
        hiding_product<Exec>(team, at_edge, edge, padded_k, rows, ds, edge, q, padded_k, sum_k, padded_k);
      }
    team.team_barrier();
    store_tokens<Exec>(team, sum_k, cols, p.head_dim, padded_k, p.scale, dk.at(b, j0, hk), dk.token_stride);
    store_tokens<Exec>(team, sum_v, cols, p.v_head_dim, padded_v, C(1), dv.at(b, j0, hk), dv.token_stride);
  }
};

/// dq of one tile of queries, over all keys it sees. Lanes are queries: Sᵀ(key, query).
template <class T, class Exec>
struct FlashGradientQ {
  using C = compute_t<T>;
  using Block = RegisterBlock<Exec, C>;
  using Member = TeamMember<Exec>;

  FlashGradient<T> g;
  Heads<T> dq;
  int edge, padded_k, level;
  std::int64_t elements, q_tiles;

  static std::int64_t scratch_elements(const FlashProblem<T>& p, int edge) {
    const std::int64_t k = padded(p.head_dim, Block::cols);
    return edge * (2 * std::int64_t(p.head_dim) + 2 * std::int64_t(p.v_head_dim) + 2 * k + 2 * edge + 2);
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const FlashProblem<T>& p = g.p;
    const std::int64_t heads = p.batches * p.q_heads, rank = team.league_rank();
    const std::int64_t tile = q_tiles - 1 - rank / heads, b = rank % heads / p.q_heads, h = rank % p.q_heads;
    const std::int64_t hk = h / p.group, i0 = tile * edge;
    const int rows = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.q_len - i0));

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

    load_by_feature<Exec>(team, p.q.at(b, i0, h), p.q.token_stride, rows, edge, p.head_dim, q);
    load_by_feature<Exec>(team, g.dout.at(b, i0, h), g.dout.token_stride, rows, edge, p.v_head_dim, dout);
    g.template load_statistics<Exec>(team, b, h, i0, rows, edge, lse, delta);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, edge * padded_k), [&](int i) { sum[i] = C(0); });

    const std::int64_t begin = p.visibility.first(i0) / edge * edge, end = p.visibility.end(i0 + rows - 1);
    for (std::int64_t j0 = begin; j0 < end; j0 += edge) {
      const int cols = static_cast<int>(Kokkos::min<std::int64_t>(edge, p.kv_len - j0));
      const bool at_edge =
          p.masked || j0 < p.visibility.first(i0 + rows - 1) || j0 + cols > p.visibility.end(i0);
      team.team_barrier();
      load_by_token<Exec>(team, p.k.at(b, j0, hk), p.k.token_stride, cols, p.head_dim, padded_k, k);
      load_by_feature<Exec>(team, p.k.at(b, j0, hk), p.k.token_stride, cols, edge, p.head_dim, k_t);
      load_by_feature<Exec>(team, p.v.at(b, j0, hk), p.v.token_stride, cols, edge, p.v_head_dim, v);
      team.team_barrier();
      tile_product<Exec, false>(team, edge, edge, p.head_dim, k_t, edge, q, edge, s, edge);
      tile_product<Exec, false>(team, edge, edge, p.v_head_dim, v, edge, dout, edge, ds, edge);
      team.team_barrier();
      g.template differentiate<Exec, false>(team, at_edge, b, h, i0, j0, rows, cols, edge, s, ds, lse, delta);
      team.team_barrier();
      hiding_product<Exec>(team, at_edge, edge, padded_k, cols, ds, edge, k, padded_k, sum, padded_k);
    }
    team.team_barrier();
    store_tokens<Exec>(team, sum, rows, p.head_dim, padded_k, p.scale, dq.at(b, i0, h), dq.token_stride);
  }
};

inline std::size_t attention_backward_workspace(const AttentionBackward& p) {
  return static_cast<std::size_t>(p.lse.size()) * size_of(compute_dtype(p.q.dtype));
}

template <class T, class Exec>
void attention_backward_kokkos(const Exec& exec, const AttentionBackward& problem, const Workspace& workspace) {
  using C = compute_t<T>;
  using KernelKV = FlashGradientKV<T, Exec>;
  using KernelQ = FlashGradientQ<T, Exec>;
  auto* delta = static_cast<C*>(workspace.data);
  attention_delta<T>(exec, problem, delta);

  const FlashProblem<T> p = flash_problem<T>(problem);
  const FlashGradient<T> g{p, heads_of<const T>(problem.dout), problem.lse.as<const C, 3>(), delta};
  const int padded_k = padded(p.head_dim, RegisterBlock<Exec, C>::cols);
  const int padded_v = padded(p.v_head_dim, RegisterBlock<Exec, C>::cols);
  int level = 0;
  {
    const int edge = flash_tile<Exec, C>([&](int e) { return KernelKV::scratch_elements(p, e); });
    const std::int64_t elements = KernelKV::scratch_elements(p, edge),
                       tiles = ceil_div<std::int64_t>(p.kv_len, edge);
    const std::int64_t league = p.batches * p.kv_heads * tiles;
    if (league > 0) {
      const auto policy = flash_policy<Exec, C>(exec, league, elements, level);
      Kokkos::parallel_for("kformer::attention_backward_kv[kokkos]", policy,
                           KernelKV{g, heads_of<T>(problem.dk), heads_of<T>(problem.dv), edge, padded_k,
                                    padded_v, level, elements, tiles});
    }
  }
  const int edge = flash_tile<Exec, C>([&](int e) { return KernelQ::scratch_elements(p, e); });
  const std::int64_t elements = KernelQ::scratch_elements(p, edge),
                     tiles = ceil_div<std::int64_t>(p.q_len, edge);
  const std::int64_t league = p.batches * p.q_heads * tiles;
  if (league == 0) return;
  const auto policy = flash_policy<Exec, C>(exec, league, elements, level);
  Kokkos::parallel_for("kformer::attention_backward_q[kokkos]", policy,
                       KernelQ{g, heads_of<T>(problem.dq), edge, padded_k, level, elements, tiles});
}

}  // namespace kformer::Impl
