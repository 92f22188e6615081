// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <functional>

#include "ops/common/host_tensor.hpp"
#include "support/references.hpp"

/// \file
/// A linear map whose adapter has dropout or magnitudes, in textbook order. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Testing {

/// With d = mask ⊙ x and g = m/‖W + s B A‖, rows of the latter taken as constants in backward:
///
///     y = x Wᵀ + bias + residual + s (d Aᵀ) Bᵀ                          without magnitudes
///     y = g ⊙ (x Wᵀ + s (x Aᵀ) Bᵀ) + bias + residual                    without a mask
///     y = x Wᵀ + bias + residual + (g − 1) ⊙ d Wᵀ + g ⊙ s (d Aᵀ) Bᵀ    with both
///
/// `bias`, `mask` and `magnitude` may be absent.
template <class Real, class Store>
struct ComposedMap {
  using Tensor = kformer::Impl::HostTensor<Real>;
  const Tensor &w, &a, &b;
  Tensor bias, mask, magnitude;
  Real scale;

  struct Gradients {
    Tensor dx, da, db, dm;
  };

  bool needed() const { return mask.present() || magnitude.present(); }

  Tensor forward(const Tensor& x, const Tensor& residual) const {
    if (!mask.present()) {
      const Tensor product = reduced(by_columns(unscaled(x), gain()));
      return combined(combined(product, bias), residual);
    }
    const Tensor base = linear(x, w, bias, residual), d = masked(x);
    if (!magnitude.present()) return linear(low(d), b, {}, base);
    const auto g = gain();
    const Tensor with_base = plus(base, by_columns(linear(d, w), shifted(g, -1)));
    return plus(with_base, by_columns(linear(low(d), b), g));
  }

  Gradients backward(const Tensor& x, const Tensor& dy) const {
    const Tensor seen = mask.present() ? masked(x) : x;
    Gradients r;
    Tensor d = dy;
    if (magnitude.present()) {
      const Tensor z = unscaled(seen);
      r.dm = Tensor({w.extent(0)});
      const std::vector<Real> n = norms();
      for (std::int64_t c = 0; c < w.extent(0); ++c) {
        for (std::int64_t row = 0; row < dy.extent(0); ++row) r.dm(c) += dy(row, c) * z(row, c);
        r.dm(c) /= n[static_cast<std::size_t>(c)];
      }
      d = reduced(by_columns(dy, gain()));
    }
    // Of what the adapter computes: s d B.
    Tensor d_low = kformer::Impl::reference::linear_backward_input<Real, Real>(b, d);
    for (Real& v : d_low.values()) v = kformer::Impl::stored<Store>(scale * v);
    r.db = kformer::Impl::reference::linear_backward_weight<Real>(low(seen), d);
    r.da = kformer::Impl::reference::linear_backward_weight<Real>(seen, d_low);
    const Tensor through_adapter = kformer::Impl::reference::linear_backward_input<Real, Store>(a, d_low);
    if (!mask.present()) {
      r.dx = plus(kformer::Impl::reference::linear_backward_input<Real, Store>(w, d), through_adapter);
      return r;
    }
    r.dx = plus(kformer::Impl::reference::linear_backward_input<Real, Store>(w, dy), masked(through_adapter));
    if (magnitude.present())
      r.dx = plus(r.dx, masked(kformer::Impl::reference::linear_backward_input<Real, Store>(
                            w, reduced(by_columns(dy, shifted(gain(), -1))))));
    return r;
  }

 private:
  static Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& summand = {},
                       const Tensor& other = {}) {
    return kformer::Impl::reference::linear_forward<Real, Store>(x, weight, summand, other);
  }
  Tensor low(Tensor x) const {
    for (Real& v : x.values()) v *= scale;
    return linear(x, a);
  }
  Tensor unscaled(const Tensor& x) const { return linear(low(x), b, {}, linear(x, w)); }
  Tensor masked(Tensor x) const {
    for (std::size_t i = 0; i < x.values().size(); ++i) x.values()[i] *= mask.values()[i];
    return x;
  }
  std::vector<Real> norms() const {
    std::vector<Real> all;
    for (std::int64_t o = 0; o < w.extent(0); ++o) {
      Real square = 0;
      for (std::int64_t i = 0; i < w.extent(1); ++i) {
        Real v = w(o, i);
        for (std::int64_t k = 0; k < a.extent(0); ++k) v += scale * b(o, k) * a(k, i);
        square += v * v;
      }
      using std::sqrt;
      all.push_back(sqrt(square));
    }
    return all;
  }
  std::vector<Real> gain() const {
    std::vector<Real> all = norms();
    for (std::size_t o = 0; o < all.size(); ++o) all[o] = magnitude.values()[o] / all[o];
    return all;
  }
  static std::vector<Real> shifted(std::vector<Real> all, Real by) {
    for (Real& v : all) v += by;
    return all;
  }
  static Tensor by_columns(Tensor t, const std::vector<Real>& factor) {
    for (std::int64_t r = 0; r < t.extent(0); ++r)
      for (std::int64_t c = 0; c < t.extent(1); ++c) t(r, c) *= factor[static_cast<std::size_t>(c)];
    return t;
  }
  static Tensor reduced(Tensor t) {
    for (Real& v : t.values()) v = kformer::Impl::stored<Store>(v);
    return t;
  }
  static Tensor plus(Tensor x, const Tensor& other) {
    for (std::size_t i = 0; i < x.values().size(); ++i)
      x.values()[i] = kformer::Impl::stored<Store>(x.values()[i] + other.values()[i]);
    return x;
  }
  // A row for all, a matrix, or nothing.
  static Tensor combined(const Tensor& x, const Tensor& other) {
    if (!other.present()) return x;
    if (other.rank() == 2) return plus(x, other);
    Tensor rows = x;
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t c = 0; c < x.extent(1); ++c) rows(r, c) = other(c);
    return plus(x, rows);
  }
};

}  // namespace kformer::Testing
