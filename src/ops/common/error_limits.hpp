// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/tolerance.hpp"
#include "ops/common/estimated.hpp"

namespace kformer::Impl {

/// How far a result stored as `stored` may be from `reference`, by the errors that the naive computation expects of
/// itself.
template <class Real, class C>
ErrorLimits error_limits(DType stored, const HostTensor<Real>& reference,
                         const HostTensor<Estimated<C>>& naive) {
  ErrorLimits limits(stored, row_length(naive));
  for (std::size_t i = 0; i < naive.values().size(); ++i) {
    const Estimated<C>& x = naive.values()[i];
    limits.add(reference.values()[i], isfinite(x) ? x.variance_before() : x.value(), x.half_ulp());
  }
  return limits;
}

/// The same by the errors of one naive computation.
template <class Real, class C>
ErrorLimits error_limits(DType stored, const HostTensor<Real>& reference, const HostTensor<C>& naive) {
  return sampled_limits(stored, dtype_of<C>, row_length(naive), naive.values(), reference.values());
}

}  // namespace kformer::Impl
