// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/common/host_tensor.hpp"

/// \file
/// SwiGLU in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Impl::reference {

template <class Real>
Real sigmoid(Real g) {
  return 1 / (1 + exp(-g));
}

/// g · σ(g), and its limits at ±∞.
template <class Real>
Real silu(Real g) {
  return isinf(g) ? std::max(g, Real(0)) : g * sigmoid(g);
}

/// σ(g) · (1 + g · (1 − σ(g))), and its limits at ±∞.
template <class Real>
Real silu_slope(Real g) {
  const Real s = sigmoid(g);
  return isinf(g) ? s : s * (1 + g * (1 - s));
}

/// y = silu(gate) · up.
template <class Real, class Store>
HostTensor<Real> swiglu_forward(const HostTensor<Real>& gate, const HostTensor<Real>& up) {
  HostTensor<Real> y({gate.extent(0), gate.extent(1)});
  for (std::size_t i = 0; i < y.values().size(); ++i)
    y.values()[i] = stored<Store>(stored<Store>(silu(gate.values()[i])) * up.values()[i]);
  return y;
}

template <class Real>
struct SwigluGradients {
  HostTensor<Real> dgate, dup;
};

/// dup = dy · silu(gate), dgate = dy · up · silu′(gate).
template <class Real, class Store>
SwigluGradients<Real> swiglu_backward(const HostTensor<Real>& gate, const HostTensor<Real>& up,
                                      const HostTensor<Real>& dy) {
  const auto rows = gate.extent(0), hidden = gate.extent(1);
  SwigluGradients<Real> r{HostTensor<Real>({rows, hidden}), HostTensor<Real>({rows, hidden})};
  for (std::size_t i = 0; i < dy.values().size(); ++i) {
    const Real g = gate.values()[i], u = up.values()[i], d = dy.values()[i];
    r.dup.values()[i] = stored<Store>(d * stored<Store>(silu(g)));
    r.dgate.values()[i] = stored<Store>(stored<Store>(d * u) * stored<Store>(silu_slope(g)));
  }
  return r;
}

}  // namespace kformer::Impl::reference
