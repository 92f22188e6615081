// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/host_tensor.hpp"

/// \file
/// The linear map in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Impl::reference {

/// y = scale · x Wᵀ [+ bias] [+ residual]; `bias` and `residual` may be absent.
template <class Real, class Store>
HostTensor<Real> linear_forward(const HostTensor<Real>& x, const HostTensor<Real>& weight,
                                const HostTensor<Real>& bias, const HostTensor<Real>& residual,
                                Real scale = 1) {
  const auto rows = x.extent(0), in = x.extent(1), out = weight.extent(0);
  HostTensor<Real> y({rows, out});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      Real sum = 0;
      for (std::int64_t i = 0; i < in; ++i) sum += x(r, i) * weight(o, i);
      sum = stored<Store>(scale * sum);
      if (bias.present()) sum = stored<Store>(sum + bias(o));
      if (residual.present()) sum = stored<Store>(residual(r, o) + sum);
      y(r, o) = sum;
    }
  return y;
}

/// dx = scale · dy W.
template <class Real, class Store>
HostTensor<Real> linear_backward_input(const HostTensor<Real>& weight, const HostTensor<Real>& dy,
                                       Real scale = 1) {
  const auto rows = dy.extent(0), out = weight.extent(0), in = weight.extent(1);
  HostTensor<Real> dx({rows, in});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < in; ++i) {
      Real sum = 0;
      for (std::int64_t o = 0; o < out; ++o) sum += dy(r, o) * weight(o, i);
      dx(r, i) = stored<Store>(scale * sum);
    }
  return dx;
}

/// dweight = scale · dyᵀ x, kept in the type of arithmetic.
template <class Real>
HostTensor<Real> linear_backward_weight(const HostTensor<Real>& x, const HostTensor<Real>& dy, Real scale = 1) {
  const auto rows = x.extent(0), in = x.extent(1), out = dy.extent(1);
  HostTensor<Real> dweight({out, in});
  for (std::int64_t o = 0; o < out; ++o)
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t r = 0; r < rows; ++r) dweight(o, i) += dy(r, o) * x(r, i);
      dweight(o, i) *= scale;
    }
  return dweight;
}

/// dbias = Σ_rows dy, kept in the type of arithmetic.
template <class Real>
HostTensor<Real> linear_bias_backward(const HostTensor<Real>& dy) {
  HostTensor<Real> dbias({dy.extent(1)});
  for (std::int64_t r = 0; r < dy.extent(0); ++r)
    for (std::int64_t o = 0; o < dy.extent(1); ++o) dbias(o) += dy(r, o);
  return dbias;
}

}  // namespace kformer::Impl::reference
