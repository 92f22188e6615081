// SPDX-License-Identifier: MIT
#pragma once

#include <limits>

#include "ops/common/host_tensor.hpp"

/// \file
/// The embedding in textbook order: the oracle. Copies and sums round nothing but their result, so there is no
/// `Store` here. Ids are given as `Real`, which holds each of them exactly below 2^24.

namespace kformer::Impl::reference {

/// y[row] = weight[ids[row]], NaN if there is no such row.
template <class Real>
HostTensor<Real> embedding_forward(const HostTensor<Real>& ids, const HostTensor<Real>& weight) {
  const auto rows = ids.extent(0), hidden = weight.extent(1);
  HostTensor<Real> y({rows, hidden}, std::numeric_limits<Real>::quiet_NaN());
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto id = static_cast<std::int64_t>(ids(i));
    if (id < 0 || id >= weight.extent(0)) continue;
    for (std::int64_t h = 0; h < hidden; ++h) y(i, h) = weight(id, h);
  }
  return y;
}

/// dweight[ids[row]] += dy[row], starting from `dweight`.
template <class Real>
HostTensor<Real> embedding_backward(const HostTensor<Real>& ids, const HostTensor<Real>& dy,
                                    HostTensor<Real> dweight) {
  for (std::int64_t i = 0; i < dy.extent(0); ++i) {
    const auto id = static_cast<std::int64_t>(ids(i));
    if (id < 0 || id >= dweight.extent(0)) continue;
    for (std::int64_t h = 0; h < dy.extent(1); ++h) dweight(id, h) += dy(i, h);
  }
  return dweight;
}

}  // namespace kformer::Impl::reference
