// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/reference.hpp"

/// \file
/// Standard attention in textbook order. Forward is that of attention, whose reference has the probabilities
/// too; backward starts from the probabilities that forward saved.

namespace kformer::Impl::reference {

/// dv = Pᵀ dout, dP = dout vᵀ, dS = P ∘ (dP − Σ_j P ∘ dP), dq = scale · dS k, dk = scale · dSᵀ q; P = 0 hides a
/// key.
template <class Real, class Store>
AttentionGradients<Real> standard_attention_backward(const HostTensor<Real>& q, const HostTensor<Real>& k,
                                                     const HostTensor<Real>& v,
                                                     const HostTensor<Real>& probabilities,
                                                     const HostTensor<Real>& dout,
                                                     const AttentionOptions& options) {
  const auto batch = q.extent(0), q_len = q.extent(1), q_heads = q.extent(2), head_dim = q.extent(3);
  const auto kv_len = k.extent(1), kv_heads = k.extent(2), v_head_dim = v.extent(3);
  const Real scale = Real(attention_scale(options, head_dim));
  AttentionGradients<Real> r{HostTensor<Real>({batch, q_len, q_heads, head_dim}),
                             HostTensor<Real>({batch, kv_len, kv_heads, head_dim}),
                             HostTensor<Real>({batch, kv_len, kv_heads, v_head_dim})};
  std::vector<Real> dp(static_cast<std::size_t>(kv_len));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < q_heads; ++h)
      for (std::int64_t i = 0; i < q_len; ++i) {
        const std::int64_t hk = h * kv_heads / q_heads;
        Real delta = 0;
        for (std::int64_t j = 0; j < kv_len; ++j) {
          const Real p = probabilities(b, h, i, j);
          if (p == Real(0)) continue;
          Real dot = 0;
          for (std::int64_t d = 0; d < v_head_dim; ++d) {
            dot += dout(b, i, h, d) * v(b, j, hk, d);
            r.dv(b, j, hk, d) += p * dout(b, i, h, d);
          }
          dp[j] = stored<Store>(dot);
          delta += p * dp[j];
        }
        for (std::int64_t j = 0; j < kv_len; ++j) {
          const Real p = probabilities(b, h, i, j);
          if (p == Real(0)) continue;
          const Real ds = stored<Store>(p * (dp[j] - delta));
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
