// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"
#include "kformer/ops/impl/flash.hpp"

/// \file
/// Shared by the backward kernels of portable flash attention: δ, and the gradient of a tile of scores.

namespace kformer::Impl {

/// The operand whose gradient a kernel computes.
enum class GradientOf { keys, queries, bias };

/// Members of all gradient kernels.
template <class T, class Scores>
struct FlashGradient {
  using C = compute_t<T>;

  FlashProblem<T, Scores> p;
  HeadArray<const T> dout;
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

  /// In place of scores and of the gradients of probabilities: P = exp(S − lse) and the gradient dS = P ∘ (dP −
  /// δ) of the scores times their derivative. Rows of the tile are queries, but keys for the gradient of
  /// queries. Hidden pairs get 0 in both.
  template <class Exec, GradientOf what>
  KOKKOS_FUNCTION void differentiate(const TeamMember<Exec>& team, bool may_hide, const FlashPairs& pairs,
                                     const SeenKeys* seen, int edge, C* s, C* ds, const C* tile_lse,
                                     const C* tile_delta) const {
    constexpr bool rows_are_queries = what != GradientOf::queries;
    const int rows = rows_are_queries ? pairs.queries : pairs.keys,
              columns = rows_are_queries ? pairs.keys : pairs.queries;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int row) {
      C* score = s + row * edge;
      C* gradient = ds + row * edge;
      if constexpr (Scores::plain) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, edge), [&](int column) {
          const int i = rows_are_queries ? row : column;
          const C probability = fast_exp(p.scale * score[column] - tile_lse[i]);
          score[column] = probability;
          gradient[column] = probability * (gradient[column] - tile_delta[i]);
        });
        // Hidden keys, and queries that see no key, may have brought NaN into the tile.
        if (may_hide)
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, columns), [&](int column) {
            const int i = rows_are_queries ? row : column, j = rows_are_queries ? column : row;
            if (!pairs.see(i, j)) score[column] = gradient[column] = C(0);
          });
      } else {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, columns), [&](int column) {
          const int i = rows_are_queries ? row : column, j = rows_are_queries ? column : row;
          if (!p.sees(pairs, seen, i, j)) {
            score[column] = gradient[column] = C(0);
            return;
          }
          const AttentionIndex pair = pairs.at(i, j);
          const C scaled = p.scale * score[column];
          const C probability = fast_exp(p.scores.apply(scaled, pair, pairs.shift()) - tile_lse[i]);
          const C by_score = probability * (gradient[column] - tile_delta[i]);
          score[column] = probability;
          if constexpr (what == GradientOf::bias)
            gradient[column] = by_score * p.scores.derivative_by_bias(scaled, pair, pairs.shift());
          else
            gradient[column] = by_score * p.scores.derivative(scaled, pair, pairs.shift());
          if constexpr (what == GradientOf::queries) p.scores.gradient(by_score, scaled, pair, pairs.shift());
        });
      }
    });
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
        // A query that sees nothing has out 0, and a gradient that does not matter.
        for (int c = 0; c < dim; ++c)
          sum += static_cast<C>(o[c]) == C(0) ? C(0) : static_cast<C>(o[c]) * static_cast<C>(d[c]);
        delta[row] = sum;
      });
}

}  // namespace kformer::Impl
