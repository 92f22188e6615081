// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/matmul.hpp"
#include "kformer/ops/standard_attention.hpp"

/// \file
/// Standard attention on every backend: batched matrix products around a softmax in place.
///
/// A probability of 0 hides its key in every product (Zeros::annihilate), so that a NaN in a hidden key or
/// value stays where it is.

namespace kformer::Impl {

/// The strides of a (batch, seq, heads, dim) array as a factor whose rows are tokens: summed over dim.
template <class T>
Factor<T> tokens_by_features(const TensorRef& x, std::int64_t head_divisor = 1) {
  return {.data = static_cast<const T*>(x.data),
          .index_stride = x.stride[1],
          .inner_stride = 1,
          .batch_stride = x.stride[0],
          .head_stride = x.stride[2],
          .head_divisor = head_divisor};
}

/// The same array as a factor whose rows are features: summed over tokens.
template <class T>
Factor<T> features_by_tokens(const TensorRef& x, std::int64_t head_divisor = 1) {
  return {.data = static_cast<const T*>(x.data),
          .index_stride = 1,
          .inner_stride = x.stride[1],
          .batch_stride = x.stride[0],
          .head_stride = x.stride[2],
          .head_divisor = head_divisor};
}

/// `rows` times the transpose of `keys`, for each head: into the place of scores.
template <class T>
MatrixProduct<T, T> rows_times_keys(const TensorRef& rows, const TensorRef& keys, T* scores) {
  const std::int64_t q_len = rows.extent[1], heads = rows.extent[2], kv_len = keys.extent[1];
  return {.batches = rows.extent[0],
          .heads = heads,
          .rows = q_len,
          .cols = kv_len,
          .inner = rows.extent[3],
          .left = tokens_by_features<T>(rows),
          .right = tokens_by_features<T>(keys, heads / keys.extent[2]),
          .result = scores,
          .row_stride = kv_len,
          .batch_stride = heads * q_len * kv_len,
          .head_stride = q_len * kv_len};
}

/// `scores` times `keys`, for each head: into `rows`.
template <class T>
MatrixProduct<T, T> scores_times_keys(const T* scores, const TensorRef& keys, const TensorRef& rows) {
  const std::int64_t q_len = rows.extent[1], heads = rows.extent[2], kv_len = keys.extent[1];
  return {.batches = rows.extent[0],
          .heads = heads,
          .rows = q_len,
          .cols = rows.extent[3],
          .inner = kv_len,
          .left = {.data = scores,
                   .index_stride = kv_len,
                   .inner_stride = 1,
                   .batch_stride = heads * q_len * kv_len,
                   .head_stride = q_len * kv_len},
          .right = features_by_tokens<T>(keys, heads / keys.extent[2]),
          .result = static_cast<T*>(rows.data),
          .row_stride = rows.stride[1],
          .batch_stride = rows.stride[0],
          .head_stride = rows.stride[2]};
}

/// What a softmax row needs besides its scores.
template <class T>
struct SoftmaxRows {
  Visibility visibility;
  Strided<const T, 4> mask;  // extents of 1 have stride 0
  bool masked;
  std::int64_t heads, q_len, kv_len;
  T* scores;
};

template <class T>
SoftmaxRows<T> softmax_rows(const StandardAttentionForward& p) {
  const std::int64_t q_len = p.q.extent[1], kv_len = p.k.extent[1];
  SoftmaxRows<T> rows{{q_len, kv_len, p.options.window, p.options.causal},
                      p.mask.as<const T, 4>(),
                      p.mask.present(),
                      p.q.extent[2],
                      q_len,
                      kv_len,
                      static_cast<T*>(p.probabilities.data)};
  for (int r = 0; r < 3; ++r)
    if (p.mask.extent[r] == 1) rows.mask.stride[r] = 0;
  return rows;
}

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

template <class T, class Exec>
void standard_attention_forward_kokkos(const Exec& exec, const StandardAttentionForward& p) {
  if (p.q.extent[0] * p.q.extent[1] * p.q.extent[2] == 0) return;
  auto* probabilities = static_cast<T*>(p.probabilities.data);
  auto scores = rows_times_keys<T>(p.q, p.k, probabilities);
  scores.alpha = static_cast<compute_t<T>>(attention_scale(p.options, p.q.extent[3]));
  matmul("kformer::standard_attention_forward_scores[kokkos]", exec, scores);
  softmax_in_place<T>(exec, p);
  matmul<Zeros::annihilate>("kformer::standard_attention_forward_out[kokkos]", exec,
                            scores_times_keys<T>(probabilities, p.v, p.out));
}

inline std::size_t standard_attention_backward_workspace(const StandardAttentionBackward& p) {
  return static_cast<std::size_t>(p.probabilities.size()) * size_of(p.q.dtype);
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

template <class T, class Exec>
void standard_attention_backward_kokkos(const Exec& exec, const StandardAttentionBackward& p,
                                        const Workspace& workspace) {
  using C = compute_t<T>;
  const std::int64_t batch = p.q.extent[0], q_len = p.q.extent[1], heads = p.q.extent[2];
  const std::int64_t kv_len = p.k.extent[1], kv_heads = p.k.extent[2];
  if (batch == 0 || kv_heads == 0) return;
  const std::int64_t group = heads / kv_heads, plane = q_len * kv_len;
  const auto* probabilities = static_cast<const T*>(p.probabilities.data);
  auto* gradient = static_cast<T*>(workspace.data);  // of the probabilities, then of the scores
  matmul("kformer::standard_attention_backward_probabilities[kokkos]", exec,
         rows_times_keys<T>(p.dout, p.v, gradient));
  score_gradient_in_place(exec, probabilities, gradient, batch * heads * q_len, kv_len);
  const C scale = static_cast<C>(attention_scale(p.options, p.q.extent[3]));
  auto dq = scores_times_keys<T>(gradient, p.k, p.dq);
  dq.alpha = scale;
  matmul<Zeros::annihilate>("kformer::standard_attention_backward_q[kokkos]", exec, dq);
  // dk and dv sum over the queries of all heads of a group: outer index the head in the group, inner the query.
  const auto by_key = [&](const T* scores) {
    return Factor<T>{.data = scores,
                     .index_stride = 1,
                     .inner_stride = kv_len,
                     .outer_stride = plane,
                     .batch_stride = heads * plane,
                     .head_stride = group * plane};
  };
  const auto by_group = [&](const TensorRef& x) {
    Factor<T> f = features_by_tokens<T>(x);
    f.outer_stride = x.stride[2];
    f.head_stride = group * x.stride[2];
    return f;
  };
  const auto key_product = [&](const char* label, const T* scores, const TensorRef& x, const TensorRef& result,
                               C alpha) {
    matmul<Zeros::annihilate>(label, exec,
                              MatrixProduct<T, T>{.batches = batch,
                                                  .heads = kv_heads,
                                                  .rows = kv_len,
                                                  .cols = result.extent[3],
                                                  .outer = group,
                                                  .inner = q_len,
                                                  .left = by_key(scores),
                                                  .right = by_group(x),
                                                  .result = static_cast<T*>(result.data),
                                                  .row_stride = result.stride[1],
                                                  .batch_stride = result.stride[0],
                                                  .head_stride = result.stride[2],
                                                  .alpha = alpha});
  };
  key_product("kformer::standard_attention_backward_k[kokkos]", gradient, p.q, p.dk, scale);
  key_product("kformer::standard_attention_backward_v[kokkos]", probabilities, p.dout, p.dv, C(1));
}

}  // namespace kformer::Impl
