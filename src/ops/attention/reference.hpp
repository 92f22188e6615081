// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>

#include "kformer/ops/attention_options.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// Attention in textbook order, all scores in memory: the oracle. See host_tensor.hpp for `Real` and `Store`.
///
/// q (batch, q_len, q_heads, head_dim), k (batch, kv_len, kv_heads, head_dim), v (batch, kv_len, kv_heads,
/// v_head_dim), mask absent or (batch|1, q_heads|1, q_len|1, kv_len). A key is hidden by position or by a mask
/// of −inf; nothing is ever computed from a hidden key.

namespace kformer::Impl::reference {

/// Which keys exist for a query, and the mask that is added to its scores.
template <class Real>
class AttentionMask {
 public:
  AttentionMask(const HostTensor<Real>& q, const HostTensor<Real>& k, const HostTensor<Real>& mask,
                const AttentionOptions& options)
      : m_visibility{q.extent(1), k.extent(1), options.window, options.causal}, m_mask(mask) {}

  Real added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!m_mask.present()) return Real(0);
    auto at = [&](int r, std::int64_t index) { return m_mask.extent(r) == 1 ? 0 : index; };
    return m_mask(at(0, b), at(1, h), at(2, i), j);
  }
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return m_visibility.sees(i, j) && added(b, h, i, j) != -std::numeric_limits<Real>::infinity();
  }

 private:
  Visibility m_visibility;
  const HostTensor<Real>& m_mask;
};

template <class Real>
struct AttentionResult {
  HostTensor<Real> out, lse, probabilities;
};

/// S = scale · q kᵀ + mask, P = softmax(S), out = P v, lse = log Σ exp(S). With `known_lse` P = exp(S −
/// known_lse).
template <class Real, class Store>
AttentionResult<Real> attention_forward(const HostTensor<Real>& q, const HostTensor<Real>& k,
                                        const HostTensor<Real>& v, const HostTensor<Real>& mask,
                                        const AttentionOptions& options,
                                        const HostTensor<Real>& known_lse = {}) {
  const auto batch = q.extent(0), q_len = q.extent(1), q_heads = q.extent(2), head_dim = q.extent(3);
  const auto kv_len = k.extent(1), kv_heads = k.extent(2), v_head_dim = v.extent(3);
  const AttentionMask<Real> seen(q, k, mask, options);
  const Real scale = Real(attention_scale(options, head_dim));
  AttentionResult<Real> r{HostTensor<Real>({batch, q_len, q_heads, v_head_dim}),
                          HostTensor<Real>({batch, q_heads, q_len}, -std::numeric_limits<Real>::infinity()),
                          HostTensor<Real>({batch, q_heads, q_len, kv_len})};
  std::vector<Real> score(static_cast<std::size_t>(kv_len));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < q_heads; ++h)
      for (std::int64_t i = 0; i < q_len; ++i) {
        const std::int64_t hk = h * kv_heads / q_heads;
        Real highest = -std::numeric_limits<Real>::infinity();
        for (std::int64_t j = 0; j < kv_len; ++j) {
          if (!seen.sees(b, h, i, j)) continue;
          Real dot = 0;
          for (std::int64_t d = 0; d < head_dim; ++d) dot += q(b, i, h, d) * k(b, j, hk, d);
          score[j] = stored<Store>(stored<Store>(scale * dot) + seen.added(b, h, i, j));
          if (!(score[j] <= highest)) highest = score[j];
        }
        if (highest == -std::numeric_limits<Real>::infinity()) continue;
        Real sum = 0;
        for (std::int64_t j = 0; j < kv_len; ++j)
          if (seen.sees(b, h, i, j)) sum += std::exp(score[j] - highest);
        r.lse(b, h, i) = highest + std::log(sum);
        for (std::int64_t j = 0; j < kv_len; ++j)
          if (seen.sees(b, h, i, j))
            r.probabilities(b, h, i, j) =
                stored<Store>(known_lse.present() ? std::exp(score[j] - known_lse(b, h, i))
                                                  : std::exp(score[j] - highest) / sum);
        for (std::int64_t d = 0; d < v_head_dim; ++d) {
          Real out = 0;
          for (std::int64_t j = 0; j < kv_len; ++j)
            if (seen.sees(b, h, i, j)) out += r.probabilities(b, h, i, j) * v(b, j, hk, d);
          r.out(b, i, h, d) = stored<Store>(out);
        }
      }
  return r;
}

template <class Real>
struct AttentionGradients {
  HostTensor<Real> dq, dk, dv;
};

/// What forward saved, as it was stored; absent for the gradient as a function of q, k, v and dout alone.
template <class Real>
struct AttentionSaved {
  HostTensor<Real> out, lse;
};

/// dv = Pᵀ dout, dP = dout vᵀ, dS = P ∘ (dP − δ), dq = scale · dS k, dk = scale · dSᵀ q with δ = Σ_j P ∘ dP. A
/// function that is handed `saved` is judged by what follows from that: P = exp(S − lse) and δ = Σ_d dout ∘
/// out.
template <class Real, class Store>
AttentionGradients<Real> attention_backward(const HostTensor<Real>& q, const HostTensor<Real>& k,
                                            const HostTensor<Real>& v, const HostTensor<Real>& mask,
                                            const HostTensor<Real>& dout, const AttentionOptions& options,
                                            const AttentionSaved<Real>& saved = {}) {
  const auto batch = q.extent(0), q_len = q.extent(1), q_heads = q.extent(2), head_dim = q.extent(3);
  const auto kv_len = k.extent(1), kv_heads = k.extent(2), v_head_dim = v.extent(3);
  const AttentionMask<Real> seen(q, k, mask, options);
  const Real scale = Real(attention_scale(options, head_dim));
  const auto forward = attention_forward<Real, Store>(q, k, v, mask, options, saved.lse);
  AttentionGradients<Real> r{HostTensor<Real>({batch, q_len, q_heads, head_dim}),
                             HostTensor<Real>({batch, kv_len, kv_heads, head_dim}),
                             HostTensor<Real>({batch, kv_len, kv_heads, v_head_dim})};
  std::vector<Real> dp(static_cast<std::size_t>(kv_len));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < q_heads; ++h)
      for (std::int64_t i = 0; i < q_len; ++i) {
        const std::int64_t hk = h * kv_heads / q_heads;
        if (forward.lse(b, h, i) == -std::numeric_limits<Real>::infinity()) continue;
        Real delta = 0;
        for (std::int64_t j = 0; j < kv_len; ++j) {
          if (!seen.sees(b, h, i, j)) continue;
          const Real p = forward.probabilities(b, h, i, j);
          Real dot = 0;
          for (std::int64_t d = 0; d < v_head_dim; ++d) {
            dot += dout(b, i, h, d) * v(b, j, hk, d);
            r.dv(b, j, hk, d) += p * dout(b, i, h, d);
          }
          dp[j] = stored<Store>(dot);
          delta += p * dp[j];
        }
        if (saved.out.present()) {
          delta = 0;
          for (std::int64_t d = 0; d < v_head_dim; ++d) delta += dout(b, i, h, d) * saved.out(b, i, h, d);
        }
        for (std::int64_t j = 0; j < kv_len; ++j) {
          if (!seen.sees(b, h, i, j)) continue;
          const Real ds = stored<Store>(forward.probabilities(b, h, i, j) * (dp[j] - delta));
          for (std::int64_t d = 0; d < head_dim; ++d) {
            r.dq(b, i, h, d) += ds * k(b, j, hk, d);
            r.dk(b, j, hk, d) += ds * q(b, i, h, d);
          }
        }
      }
  for (Real& x : r.dq.values()) x = stored<Store>(scale * x);
  for (Real& x : r.dk.values()) x = stored<Store>(scale * x);
  for (Real& x : r.dv.values()) x = stored<Store>(x);
  return r;
}

}  // namespace kformer::Impl::reference
