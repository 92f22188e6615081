// SPDX-License-Identifier: MIT
#pragma once

#include "ops/standard_attention/steps.hpp"

/// \file
/// Standard attention on every backend.

namespace kformer::Impl {

/// Softmax over the keys that are seen, in place; every other place becomes exactly 0.
template <class T, class Exec>
void softmax_in_place(const Exec& exec, const StandardAttentionForward& p) {
  using C = compute_t<T>;
  const SoftmaxRows<T> rows = softmax_rows<T>(p);
  const std::int64_t league = p.q.extent[0] * rows.heads * rows.q_len;
  if (league == 0 || rows.kv_len == 0) return;
  Kokkos::parallel_for(
      "kformer::standard_attention_forward_softmax[kokkos]", team_policy(exec, league, rows.kv_len),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank(), i = row % rows.q_len, bh = row / rows.q_len;
        const std::int64_t h = bh % rows.heads, b = bh / rows.heads;
        const std::int64_t first = rows.visibility.first(i), end = rows.visibility.end(i);
        const C hidden = -Kokkos::Experimental::infinity_v<C>;
        T* KOKKOS_RESTRICT score = rows.scores + row * rows.kv_len;
        C highest = hidden;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, rows.kv_len),
            [&](std::int64_t j, C& most) {
              C value = hidden;
              if (j >= first && j < end) {
                const C added = rows.masked ? static_cast<C>(rows.mask(b, h, i, j)) : C(0);
                // −∞ hides the key even if its score is NaN.
                if (added != hidden)
                  value = rows.masked ? static_cast<C>(T(static_cast<C>(score[j]) + added))
                                      : static_cast<C>(score[j]);
              }
              score[j] = T(value);
              if (!(value <= most)) most = value;
            },
            Kokkos::Max<C>(highest));
        team.team_barrier();
        C sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, rows.kv_len),
            [&](std::int64_t j, C& partial) {
              const C value = static_cast<C>(score[j]);
              if (value != hidden) partial += Kokkos::exp(value - highest);
            },
            sum);
        team.team_barrier();
        const C factor = sum > 0 ? C(1) / sum : sum;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows.kv_len), [&](std::int64_t j) {
          const C value = static_cast<C>(score[j]);
          score[j] = T(value == hidden ? C(0) : Kokkos::exp(value - highest) * factor);
        });
      });
}

/// dS = P ∘ (dP − Σ P ∘ dP), in place of dP.
template <class T, class Exec>
void score_gradient_in_place(const Exec& exec, const T* probabilities, T* gradient, std::int64_t rows,
                             std::int64_t kv_len) {
  using C = compute_t<T>;
  if (rows * kv_len == 0) return;
  Kokkos::parallel_for(
      "kformer::standard_attention_backward_scores[kokkos]", team_policy(exec, rows, kv_len),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const T* KOKKOS_RESTRICT p = probabilities + team.league_rank() * kv_len;
        T* KOKKOS_RESTRICT d = gradient + team.league_rank() * kv_len;
        C delta = 0;
        // A probability of 0 hides whatever the key's gradient is, NaN included.
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, kv_len),
            [&](std::int64_t j, C& partial) {
              const C pj = static_cast<C>(p[j]);
              if (pj != 0) partial += pj * static_cast<C>(d[j]);
            },
            delta);
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, kv_len), [&](std::int64_t j) {
          const C pj = static_cast<C>(p[j]);
          d[j] = T(pj == 0 ? C(0) : pj * (static_cast<C>(d[j]) - delta));
        });
      });
}

/// The steps by portable kernels.
template <class Exec>
struct KokkosAttentionSteps {
  const Exec& exec;
  const char* function;

  template <Zeros zeros, class T>
  void product(const char* step, const MatrixProduct<T, T>& p) const {
    matmul<zeros>(std::string("kformer::") + function + '_' + step + "[kokkos]", exec, p);
  }
  template <class T>
  void softmax(const StandardAttentionForward& p) const {
    softmax_in_place<T>(exec, p);
  }
  template <class T>
  void score_gradient(const T* probabilities, T* gradient, std::int64_t rows, std::int64_t kv_len) const {
    score_gradient_in_place(exec, probabilities, gradient, rows, kv_len);
  }
};

}  // namespace kformer::Impl
