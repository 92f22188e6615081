// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/matmul.hpp"
#include "kformer/ops/standard_attention.hpp"

/// \file
/// Standard attention as batched matrix products around a softmax in place, by whatever kernels `steps` has:
///
///     steps.template product<zeros>(step, product);                        // a MatrixProduct of Ts
///     steps.template softmax<T>(problem);                                  // of the scores, in place
///     steps.score_gradient(probabilities, gradient, rows, kv_len);         // dS in place of dP
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

template <class T, class Steps>
void standard_attention_forward_by(const Steps& steps, const StandardAttentionForward& p) {
  if (p.q.extent[0] * p.q.extent[1] * p.q.extent[2] == 0) return;
  auto* probabilities = static_cast<T*>(p.probabilities.data);
  auto scores = rows_times_keys<T>(p.q, p.k, probabilities);
  scores.alpha = static_cast<compute_t<T>>(attention_scale(p.options, p.q.extent[3]));
  steps.template product<Zeros::multiply>("scores", scores);
  steps.template softmax<T>(p);
  steps.template product<Zeros::annihilate>("out", scores_times_keys<T>(probabilities, p.v, p.out));
}

inline std::size_t standard_attention_backward_workspace(const StandardAttentionBackward& p) {
  return static_cast<std::size_t>(p.probabilities.size()) * size_of(p.q.dtype);
}

template <class T, class Steps>
void standard_attention_backward_by(const Steps& steps, const StandardAttentionBackward& p,
                                    const Workspace& workspace) {
  using C = compute_t<T>;
  const std::int64_t batch = p.q.extent[0], q_len = p.q.extent[1], heads = p.q.extent[2];
  const std::int64_t kv_len = p.k.extent[1], kv_heads = p.k.extent[2];
  if (batch == 0 || kv_heads == 0) return;
  const std::int64_t group = heads / kv_heads, plane = q_len * kv_len;
  const auto* probabilities = static_cast<const T*>(p.probabilities.data);
  auto* gradient = static_cast<T*>(workspace.data);  // of the probabilities, then of the scores
  steps.template product<Zeros::multiply>("probabilities", rows_times_keys<T>(p.dout, p.v, gradient));
  steps.score_gradient(probabilities, gradient, batch * heads * q_len, kv_len);
  const C scale = static_cast<C>(attention_scale(p.options, p.q.extent[3]));
  auto dq = scores_times_keys<T>(gradient, p.k, p.dq);
  dq.alpha = scale;
  steps.template product<Zeros::annihilate>("q", dq);
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
  const auto key_product = [&](const char* step, const T* scores, const TensorRef& x, const TensorRef& result,
                               C alpha) {
    steps.template product<Zeros::annihilate>(step, MatrixProduct<T, T>{.batches = batch,
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
  key_product("k", gradient, p.q, p.dk, scale);
  key_product("v", probabilities, p.dout, p.dv, C(1));
}

}  // namespace kformer::Impl
