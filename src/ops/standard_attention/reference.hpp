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
  const auto keys = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    std::vector<std::int64_t> seen;
    for (std::int64_t j = 0; j < k.extent(1); ++j)
      if (probabilities(b, h, i, j) != Real(0)) seen.push_back(j);
    return seen;
  };
  return probability_gradients<Real, Store, Store>(q, k, v, dout, Real(attention_scale(options, q.extent(3))),
                                                   probabilities, keys, {}, [](auto&&...) {});
}

}  // namespace kformer::Impl::reference
