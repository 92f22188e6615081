// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/reference_scores.hpp"

/// \file
/// Attention in textbook order, all scores in memory: the oracle. See host_tensor.hpp for `Real` and `Store`.
///
/// q (batch, q_len, q_heads, head_dim), k (batch, kv_len, kv_heads, head_dim), v (batch, kv_len, kv_heads,
/// v_head_dim). Nothing is ever computed from a hidden key.

namespace kformer::Impl::reference {

/// Calls `f(b, h, i)` for every query.
template <class Real, class F>
void for_each_query(const HostTensor<Real>& q, F f) {
  for (std::int64_t b = 0; b < q.extent(0); ++b)
    for (std::int64_t h = 0; h < q.extent(2); ++h)
      for (std::int64_t i = 0; i < q.extent(1); ++i) f(b, h, i);
}

/// `Σ_d x(b, i, h, d) · y(b, j, hk, d)`.
template <class Real>
Real dot_product(const HostTensor<Real>& x, std::int64_t i, std::int64_t h, const HostTensor<Real>& y,
                 std::int64_t j, std::int64_t hk, std::int64_t b) {
  Real dot = 0;
  for (std::int64_t d = 0; d < x.extent(3); ++d) dot += x(b, i, h, d) * y(b, j, hk, d);
  return dot;
}

template <class Real>
struct AttentionResult {
  HostTensor<Real> out, lse, probabilities;
};

/// S = the scores, P = exp(S) / (exp(sink) + Σ exp(S)), out = P v, lse = log of the divisor. With `known_lse`
/// P = exp(S − known_lse). `Scores` is the type of scores in memory.
template <class Real, class Store, class Scores = Real>
AttentionResult<Real> attention_forward(const HostTensor<Real>& q, const HostTensor<Real>& k,
                                        const HostTensor<Real>& v, const AttentionExtraTensors<Real>& extras,
                                        const AttentionOptions& options,
                                        const HostTensor<Real>& known_lse = {}) {
  const auto batch = q.extent(0), q_len = q.extent(1), q_heads = q.extent(2);
  const auto kv_len = k.extent(1), kv_heads = k.extent(2), v_head_dim = v.extent(3);
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  const AttentionScores<Real, Scores> scores(q, k, extras, options);
  AttentionResult<Real> r{HostTensor<Real>({batch, q_len, q_heads, v_head_dim}),
                          HostTensor<Real>({batch, q_heads, q_len}, -infinity),
                          HostTensor<Real>({batch, q_heads, q_len, kv_len})};
  std::vector<Real> score(static_cast<std::size_t>(kv_len));
  for_each_query(q, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t hk = h * kv_heads / q_heads;
    const auto keys = scores.keys(b, h, i, kv_len);
    Real highest = scores.sink(h);
    for (const std::int64_t j : keys) {
      score[j] = scores.score(b, h, i, j, dot_product(q, i, h, k, j, hk, b));
      if (!(score[j] <= highest)) highest = score[j];
    }
    if (highest == -infinity) return;
    Real sum = exp(scores.sink(h) - highest);
    for (const std::int64_t j : keys) sum += exp(score[j] - highest);
    r.lse(b, h, i) = highest + log(sum);
    for (const std::int64_t j : keys)
      r.probabilities(b, h, i, j) = stored<Store>(known_lse.present() ? exp(score[j] - known_lse(b, h, i))
                                                                      : exp(score[j] - highest) / sum);
    for (const std::int64_t j : keys) {
      const Real p = r.probabilities(b, h, i, j);
      for (std::int64_t d = 0; d < v_head_dim; ++d) r.out(b, i, h, d) += p * v(b, j, hk, d);
    }
    for (std::int64_t d = 0; d < v_head_dim; ++d) r.out(b, i, h, d) = stored<Store>(r.out(b, i, h, d));
  });
  return r;
}

template <class Real>
struct AttentionGradients {
  HostTensor<Real> dq, dk, dv;
  HostTensor<Real> dbias, dsinks;  ///< absent if the operand is
};

/// How probabilities depend on q and k, where softmax is not all there is.
template <class Real>
struct ProbabilityDerivatives {
  HostTensor<Real> delta;       ///< (batch, q_heads, q_len); absent: Σ_j P ∘ dP
  HostTensor<Real> derivative;  ///< of the scores by the scaled ones, like P; absent: 1
};

/// The gradients from probabilities (batch, q_heads, q_len, kv_len): dv = Pᵀ dout, dP = dout vᵀ, dS = P ∘ (dP −
/// δ), dq = scale · dS k, dk = scale · dSᵀ q. `keys(b, h, i)` are the keys that a query sees, and
/// `note(b, h, i, δ, dS)` receives the results of a query. `Scores` is the type of dP in memory.
template <class Real, class Store, class Scores, class Keys, class Note>
AttentionGradients<Real> probability_gradients(const HostTensor<Real>& q, const HostTensor<Real>& k,
                                               const HostTensor<Real>& v, const HostTensor<Real>& dout,
                                               Real scale, const HostTensor<Real>& probabilities, Keys keys,
                                               const ProbabilityDerivatives<Real>& known, Note note) {
  const auto kv_len = k.extent(1), kv_heads = k.extent(2), q_heads = q.extent(2);
  AttentionGradients<Real> r{HostTensor<Real>({q.extent(0), q.extent(1), q_heads, q.extent(3)}),
                             HostTensor<Real>({k.extent(0), kv_len, kv_heads, k.extent(3)}),
                             HostTensor<Real>({v.extent(0), kv_len, kv_heads, v.extent(3)}),
                             {},
                             {}};
  std::vector<Real> dp(static_cast<std::size_t>(kv_len)), ds(dp.size());
  for_each_query(q, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t hk = h * kv_heads / q_heads;
    const std::vector<std::int64_t> seen = keys(b, h, i);
    Real delta = 0;
    for (const std::int64_t j : seen) {
      const Real p = probabilities(b, h, i, j);
      dp[j] = stored<Scores>(dot_product(dout, i, h, v, j, hk, b));
      delta += p * dp[j];
      for (std::int64_t d = 0; d < v.extent(3); ++d) r.dv(b, j, hk, d) += p * dout(b, i, h, d);
    }
    if (known.delta.present()) delta = known.delta(b, h, i);
    std::fill(ds.begin(), ds.end(), Real(0));
    for (const std::int64_t j : seen) {
      ds[j] = stored<Store>(probabilities(b, h, i, j) * (dp[j] - delta));
      const Real through =
          known.derivative.present() ? stored<Store>(ds[j] * known.derivative(b, h, i, j)) : ds[j];
      for (std::int64_t d = 0; d < q.extent(3); ++d) {
        r.dq(b, i, h, d) += through * k(b, j, hk, d);
        r.dk(b, j, hk, d) += through * q(b, i, h, d);
      }
    }
    note(b, h, i, delta, ds);
  });
  for (Real& x : r.dq.values()) x = stored<Store>(scale * x);
  for (Real& x : r.dk.values()) x = stored<Store>(scale * x);
  for (Real& x : r.dv.values()) x = stored<Store>(x);
  return r;
}

/// What forward saved, as it was stored; absent for the gradient as a function of the operands alone.
template <class Real>
struct AttentionSaved {
  HostTensor<Real> out, lse;
};

/// δ = Σ_d dout ∘ out. An element of `out` that is 0 lets nothing through, NaN included: so it is for a query
/// that sees nothing.
template <class Real>
HostTensor<Real> attention_delta(const HostTensor<Real>& out, const HostTensor<Real>& dout) {
  HostTensor<Real> delta({out.extent(0), out.extent(2), out.extent(1)});
  for_each_query(out, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    for (std::int64_t d = 0; d < out.extent(3); ++d)
      if (out(b, i, h, d) != Real(0)) delta(b, h, i) += dout(b, i, h, d) * out(b, i, h, d);
  });
  return delta;
}

/// dq, dk, dv; dbias = Σ dS over the broadcast extents of the bias; dsink = −Σ exp(sink − lse) · δ. A function
/// that is handed `saved` is judged by what follows from that: P = exp(S − lse) and δ = Σ_d dout ∘ out.
template <class Real, class Store>
AttentionGradients<Real> attention_backward(const HostTensor<Real>& q, const HostTensor<Real>& k,
                                            const HostTensor<Real>& v,
                                            const AttentionExtraTensors<Real>& extras,
                                            const HostTensor<Real>& dout, const AttentionOptions& options,
                                            const AttentionSaved<Real>& saved = {}) {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  const auto kv_len = k.extent(1), kv_heads = k.extent(2), q_heads = q.extent(2);
  const AttentionScores<Real> scores(q, k, extras, options);
  const auto forward = attention_forward<Real, Store>(q, k, v, extras, options, saved.lse);
  const HostTensor<Real>& lse = saved.lse.present() ? saved.lse : forward.lse;
  const auto keys = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    return forward.lse(b, h, i) == -infinity ? std::vector<std::int64_t>{} : scores.keys(b, h, i, kv_len);
  };
  ProbabilityDerivatives<Real> known;
  if (saved.out.present()) known.delta = attention_delta(saved.out, dout);
  if (options.softcap > 0) {
    known.derivative = HostTensor<Real>({q.extent(0), q_heads, q.extent(1), kv_len});
    for_each_query(q, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      for (const std::int64_t j : keys(b, h, i))
        known.derivative(b, h, i, j) = scores.derivative(dot_product(q, i, h, k, j, h * kv_heads / q_heads, b));
    });
  }
  HostTensor<Real> dbias = extras.bias, dsinks = extras.sinks;
  std::fill(dbias.values().begin(), dbias.values().end(), Real(0));
  std::fill(dsinks.values().begin(), dsinks.values().end(), Real(0));
  auto r = probability_gradients<Real, Store, Real>(
      q, k, v, dout, scores.scale(), forward.probabilities, keys, known,
      [&](std::int64_t b, std::int64_t h, std::int64_t i, Real delta, const std::vector<Real>& ds) {
        for (std::int64_t j = 0; dbias.present() && j < kv_len; ++j) {
          const auto at = broadcast_index(dbias, b, h, i, j);
          dbias(at[0], at[1], at[2], at[3]) += ds[static_cast<std::size_t>(j)];
        }
        if (scores.sink(h) != -infinity) dsinks(h) -= stored<Store>(exp(scores.sink(h) - lse(b, h, i))) * delta;
      });
  for (Real& x : dbias.values()) x = stored<Store>(x);
  r.dbias = std::move(dbias);
  r.dsinks = std::move(dsinks);
  return r;
}

}  // namespace kformer::Impl::reference
