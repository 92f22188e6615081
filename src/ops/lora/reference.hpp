// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "ops/common/host_tensor.hpp"

/// \file
/// The linear map with adapters in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Impl::reference {

/// An adapter: `b` adapts the columns of y from `column` on.
template <class Real>
struct LoraTensors {
  HostTensor<Real> b;
  std::int64_t column;
  Real scale;
};

/// y with xa, or dx with dxa.
template <class Real>
struct LoraResult {
  HostTensor<Real> low, full;
};

/// xa_p = s_p x A_pᵀ and y = x Wᵀ + xa_p B_pᵀ in the columns of part p; `bias` and `residual` may be absent.
template <class Real, class Store>
LoraResult<Real> lora_forward(const HostTensor<Real>& x, const HostTensor<Real>& weight,
                              const HostTensor<Real>& bias, const HostTensor<Real>& residual,
                              const HostTensor<Real>& a, const std::vector<LoraTensors<Real>>& parts) {
  const std::int64_t rows = x.extent(0), in = x.extent(1), out = weight.extent(0);
  LoraResult<Real> r{HostTensor<Real>({rows, a.extent(0)}), HostTensor<Real>({rows, out})};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t o = 0; o < out; ++o) {
      Real sum = 0;
      for (std::int64_t i = 0; i < in; ++i) sum += x(row, i) * weight(o, i);
      r.full(row, o) = sum;
    }
    std::int64_t first = 0;  // row of a
    for (const LoraTensors<Real>& part : parts) {
      const std::int64_t rank = part.b.extent(1);
      for (std::int64_t k = first; k < first + rank; ++k) {
        Real sum = 0;
        for (std::int64_t i = 0; i < in; ++i) sum += x(row, i) * a(k, i);
        r.low(row, k) = stored<Store>(part.scale * sum);
      }
      for (std::int64_t o = 0; o < part.b.extent(0); ++o) {
        Real sum = r.full(row, part.column + o);
        for (std::int64_t k = 0; k < rank; ++k) sum += r.low(row, first + k) * part.b(o, k);
        r.full(row, part.column + o) = sum;
      }
      first += rank;
    }
    for (std::int64_t o = 0; o < out; ++o) {
      Real& y = r.full(row, o);
      y = stored<Store>(y);
      if (bias.present()) y = stored<Store>(y + bias(o));
      if (residual.present()) y = stored<Store>(residual(row, o) + y);
    }
  }
  return r;
}

/// dxa_p = s_p dy_p B_p and dx = dy W + dxa A.
template <class Real, class Store>
LoraResult<Real> lora_backward_input(const HostTensor<Real>& weight, const HostTensor<Real>& a,
                                     const std::vector<LoraTensors<Real>>& parts, const HostTensor<Real>& dy) {
  const std::int64_t rows = dy.extent(0), out = weight.extent(0), in = weight.extent(1);
  LoraResult<Real> r{HostTensor<Real>({rows, a.extent(0)}), HostTensor<Real>({rows, in})};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < in; ++i) {
      Real sum = 0;
      for (std::int64_t o = 0; o < out; ++o) sum += dy(row, o) * weight(o, i);
      r.full(row, i) = sum;
    }
    std::int64_t first = 0;
    for (const LoraTensors<Real>& part : parts) {
      const std::int64_t rank = part.b.extent(1);
      for (std::int64_t k = 0; k < rank; ++k) {
        Real sum = 0;
        for (std::int64_t o = 0; o < part.b.extent(0); ++o) sum += dy(row, part.column + o) * part.b(o, k);
        r.low(row, first + k) = stored<Store>(part.scale * sum);
      }
      first += rank;
    }
    for (std::int64_t i = 0; i < in; ++i) {
      Real sum = r.full(row, i);
      for (std::int64_t k = 0; k < a.extent(0); ++k) sum += r.low(row, k) * a(k, i);
      r.full(row, i) = stored<Store>(sum);
    }
  }
  return r;
}

}  // namespace kformer::Impl::reference
