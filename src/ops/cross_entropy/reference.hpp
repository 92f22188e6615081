// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/common/host_tensor.hpp"

/// \file
/// Cross entropy in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`. Targets are given
/// as `Real`, which holds every token id exactly where the id is below 2^24.

namespace kformer::Impl::reference {

template <class Real>
struct CrossEntropyResult {
  HostTensor<Real> loss, lse;
};

/// loss = lse − logits[target]; ignored rows are 0.
template <class Real>
CrossEntropyResult<Real> cross_entropy_forward(const HostTensor<Real>& logits, const HostTensor<Real>& targets,
                                               std::int32_t ignore_index) {
  const auto rows = logits.extent(0), vocabulary = logits.extent(1);
  CrossEntropyResult<Real> r{HostTensor<Real>({rows}), HostTensor<Real>({rows})};
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto target = static_cast<std::int64_t>(targets(i));
    if (target == ignore_index) continue;
    Real largest = std::numeric_limits<Real>::lowest();
    for (std::int64_t v = 0; v < vocabulary; ++v) largest = std::max(largest, logits(i, v));
    Real sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) sum += std::exp(logits(i, v) - largest);
    r.lse(i) = largest + std::log(sum);
    const bool valid = target >= 0 && target < vocabulary;
    r.loss(i) = valid ? r.lse(i) - logits(i, target) : std::numeric_limits<Real>::quiet_NaN();
  }
  return r;
}

/// dlogits = (softmax − onehot(target)) · dloss; ignored rows are 0.
template <class Real, class Store>
HostTensor<Real> cross_entropy_backward(const HostTensor<Real>& logits, const HostTensor<Real>& targets,
                                        const HostTensor<Real>& lse, const HostTensor<Real>& dloss,
                                        std::int32_t ignore_index) {
  const auto rows = logits.extent(0), vocabulary = logits.extent(1);
  HostTensor<Real> dlogits({rows, vocabulary});
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto target = static_cast<std::int64_t>(targets(i));
    if (target == ignore_index) continue;
    const bool valid = target >= 0 && target < vocabulary;
    const Real d = valid ? dloss(i) : std::numeric_limits<Real>::quiet_NaN();
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const Real probability = stored<Store>(std::exp(logits(i, v) - lse(i)));
      dlogits(i, v) = stored<Store>((probability - (v == target ? 1 : 0)) * d);
    }
  }
  return dlogits;
}

}  // namespace kformer::Impl::reference
