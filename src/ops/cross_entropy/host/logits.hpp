// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/functions.hpp"
#include "ops/common/simd/storage.hpp"
#include "ops/cross_entropy/host/arguments.hpp"

/// \file
/// Logits in the type of arithmetic, capped or not.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::CrossEntropyArguments;

/// Logits as they are.
template <class C>
struct PlainLogits {
  struct Logit {
    Vector<C> z;
    KFORMER_SIMD_INLINE Vector<C> chain(Vector<C> dz) const { return dz; }
  };
  explicit PlainLogits(double) {}
  KFORMER_SIMD_INLINE Logit operator()(Vector<C> x) const { return {x}; }
};

/// z = c·tanh(x/c).
template <class C>
class CappedLogits {
 public:
  struct Logit {
    Vector<C> z, slope;
    /// The gradient of x from that of z.
    KFORMER_SIMD_INLINE Vector<C> chain(Vector<C> dz) const { return dz * slope; }
  };
  explicit CappedLogits(double cap) : m_cap(C(cap)) {}
  KFORMER_SIMD_INLINE Logit operator()(Vector<C> x) const {
    const Vector<C> y = x / m_cap, size = magnitude<C>(y), square = y * y;
    // Small logits are corrected, not recomputed: that rounds less than c times a rounded tanh.
    const IntegerVector<C> is_small = size < splat(C(0.6));
    const Vector<C> correction = square * tanh_series<C>(square), t = y + y * correction;
    // With e = e^(−2|y|): tanh|y| = 1 − 2e/(1 + e), and 1 − tanh²y = 4e/(1 + e)², where nothing cancels.
    const Vector<C> e = exp<C>(size * C(-2)), sum = e + C(1);
    const Vector<C> large = m_cap - e * (2 * m_cap) / sum;
    return {choose<C>(is_small, x + x * correction, choose<C>(x < Vector<C>{}, -large, large)),
            choose<C>(is_small, C(1) - t * t, e * C(4) / (sum * sum))};
  }

 private:
  C m_cap;
};

}  // namespace kformer::Impl::simd::KFORMER_ISA
