// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kformer/ops/cross_entropy.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// Cross entropy in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`. Targets are given
/// as `Real`, which holds every token id exactly where the id is below 2^24.

namespace kformer::Impl::reference {

template <class Real>
struct CrossEntropyResult {
  HostTensor<Real> loss, lse;
};

/// z = c·tanh(x/c), or x without a cap c.
template <class Real>
Real capped_logit(Real x, const CrossEntropyOptions& options) {
  const Real cap = static_cast<Real>(options.softcap);
  return cap > 0 ? cap * tanh(x / cap) : x;
}

/// What the target distribution gives token v.
template <class Real>
Real target_share(std::int64_t v, std::int64_t target, std::int64_t vocabulary,
                  const CrossEntropyOptions& options) {
  const Real smoothing = static_cast<Real>(options.label_smoothing);
  return (v == target ? 1 - smoothing : Real(0)) + smoothing / static_cast<Real>(vocabulary);
}

/// loss = Σ_v share(v)·(lse − z[v]) + ζ·lse²; ignored rows are 0.
template <class Real>
CrossEntropyResult<Real> cross_entropy_forward(const HostTensor<Real>& logits, const HostTensor<Real>& targets,
                                               const CrossEntropyOptions& options) {
  const auto rows = logits.extent(0), vocabulary = logits.extent(1);
  CrossEntropyResult<Real> r{HostTensor<Real>({rows}), HostTensor<Real>({rows})};
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto target = static_cast<std::int64_t>(targets(i));
    if (target == options.ignore_index) continue;
    const auto z = [&](std::int64_t v) { return capped_logit(logits(i, v), options); };
    Real largest = std::numeric_limits<Real>::lowest();
    for (std::int64_t v = 0; v < vocabulary; ++v) largest = std::max(largest, z(v));
    Real sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) sum += exp(z(v) - largest);
    r.lse(i) = largest + log(sum);
    const bool valid = target >= 0 && target < vocabulary;
    if (!valid) r.loss(i) = std::numeric_limits<Real>::quiet_NaN();
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const Real share = target_share<Real>(v, target, vocabulary, options);
      if (share > 0) r.loss(i) += share * (r.lse(i) - z(v));
    }
    if (options.z_loss > 0) r.loss(i) += static_cast<Real>(options.z_loss) * r.lse(i) * r.lse(i);
  }
  return r;
}

/// dlogits = (softmax · (1 + 2ζ·lse) − share) · dz/dx · dloss; ignored rows are 0.
template <class Real, class Store>
HostTensor<Real> cross_entropy_backward(const HostTensor<Real>& logits, const HostTensor<Real>& targets,
                                        const HostTensor<Real>& lse, const HostTensor<Real>& dloss,
                                        const CrossEntropyOptions& options) {
  const auto rows = logits.extent(0), vocabulary = logits.extent(1);
  HostTensor<Real> dlogits({rows, vocabulary});
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto target = static_cast<std::int64_t>(targets(i));
    if (target == options.ignore_index) continue;
    const bool valid = target >= 0 && target < vocabulary;
    const Real d = valid ? dloss(i) : std::numeric_limits<Real>::quiet_NaN();
    const Real pull = 1 + 2 * static_cast<Real>(options.z_loss) * lse(i);
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const Real z = capped_logit(logits(i, v), options), cap = static_cast<Real>(options.softcap);
      const Real slope = cap > 0 ? 1 - (z / cap) * (z / cap) : Real(1);
      const Real probability = stored<Store>(exp(z - lse(i)));
      const Real share = target_share<Real>(v, target, vocabulary, options);
      dlogits(i, v) = stored<Store>((probability * pull - share) * slope * d);
    }
  }
  return dlogits;
}

}  // namespace kformer::Impl::reference
