// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "ops/common/host_tensor.hpp"

/// \file
/// RMSNorm in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Impl::reference {

template <class Real>
struct RmsNormResult {
  HostTensor<Real> sum, y, rstd;
};

/// y = x̂ · weight with x̂ = x · rstd; `residual` may be absent. The norm is that of the sum as it is stored:
/// in `Sum`.
template <class Real, class Store, class Sum = Store>
RmsNormResult<Real> rms_norm_forward(const HostTensor<Real>& x, const HostTensor<Real>& residual,
                                     const HostTensor<Real>& weight, double eps) {
  const auto rows = x.extent(0), hidden = x.extent(1);
  RmsNormResult<Real> r{HostTensor<Real>({rows, hidden}), HostTensor<Real>({rows, hidden}),
                        HostTensor<Real>({rows})};
  for (std::int64_t i = 0; i < rows; ++i) {
    Real squares = 0;
    for (std::int64_t h = 0; h < hidden; ++h) {
      r.sum(i, h) = residual.present() ? stored<Sum>(x(i, h) + residual(i, h)) : x(i, h);
      squares += r.sum(i, h) * r.sum(i, h);
    }
    r.rstd(i) = Real(1) / sqrt(squares / Real(hidden) + Real(eps));
    for (std::int64_t h = 0; h < hidden; ++h)
      r.y(i, h) = stored<Store>(stored<Store>(r.sum(i, h) * r.rstd(i)) * weight(h));
  }
  return r;
}

template <class Real>
struct RmsNormGradients {
  HostTensor<Real> dx, dweight;
};

/// dx = dsum + rstd · (g − x̂ · mean(g · x̂)), g = dy · weight; dweight = Σ_rows dy · x̂; `dsum` may be absent.
template <class Real, class Store>
RmsNormGradients<Real> rms_norm_backward(const HostTensor<Real>& x, const HostTensor<Real>& weight,
                                         const HostTensor<Real>& rstd, const HostTensor<Real>& dy,
                                         const HostTensor<Real>& dsum) {
  const auto rows = x.extent(0), hidden = x.extent(1);
  RmsNormGradients<Real> r{HostTensor<Real>({rows, hidden}), HostTensor<Real>({hidden})};
  for (std::int64_t i = 0; i < rows; ++i) {
    Real dot = 0;
    for (std::int64_t h = 0; h < hidden; ++h)
      dot += stored<Store>(dy(i, h) * weight(h)) * stored<Store>(x(i, h) * rstd(i));
    const Real mean = dot / Real(hidden);
    for (std::int64_t h = 0; h < hidden; ++h) {
      const Real g = stored<Store>(dy(i, h) * weight(h)), xhat = stored<Store>(x(i, h) * rstd(i));
      const Real dx = stored<Store>(rstd(i) * (g - xhat * mean));
      r.dx(i, h) = dsum.present() ? stored<Store>(dsum(i, h) + dx) : dx;
      r.dweight(h) += dy(i, h) * xhat;
    }
  }
  return r;
}

}  // namespace kformer::Impl::reference
