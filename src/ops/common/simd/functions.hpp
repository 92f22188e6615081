// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/vector.hpp"

/// \file
/// Functions that only some blocks need.

namespace kformer::Impl::simd::KFORMER_ISA {

// tanh(x) = x + x³·t(x²) for |x| ≤ 0.6, t minimax for the relative error: 2.8e-9 (float), 4.1e-18 (double).
inline constexpr float tanh_float[] = {-0.333332980021109646620f, 0.133319241269467835770f,
                                       -0.0537838303128596540020f, 0.0207959718047621950080f,
                                       -0.00589515825488754874480f};
inline constexpr double tanh_double[] = {
    -0.33333333333333125005,    0.13333333333299659151,     -0.053968253949294263343,
    0.021869488002535392897,    -0.0088632267771544476469,  0.0035920373772747731948,
    -0.0014552153542231547662,  0.00058718838038588127391,  -0.00023039676447235622166,
    0.000079313900566891316389, -0.000017178701441484684469};

/// t(x²), for |x| ≤ 0.6.
template <class C>
KFORMER_SIMD_INLINE Vector<C> tanh_series(Vector<C> square) {
  const C* t;
  int degree;
  if constexpr (sizeof(C) == 4)
    t = tanh_float, degree = 4;
  else
    t = tanh_double, degree = 10;
  Vector<C> p = splat(t[degree]);
  for (int i = degree - 1; i >= 0; --i) p = p * square + splat(t[i]);
  return p;
}

/// tanh to a few ulp.
template <class C>
KFORMER_SIMD_INLINE Vector<C> tanh(Vector<C> x) {
  const Vector<C> square = x * x;
  const Vector<C> small = x + x * square * tanh_series<C>(square);
  const Vector<C> size = magnitude<C>(x);
  // 1 − 2/(exp(2|x|) + 1); beyond 20 it is 1, and exp need not be computed.
  const Vector<C> bounded = choose<C>(size > splat(C(20)), splat(C(20)), size);
  const Vector<C> large = C(1) - C(2) / (exp<C>(bounded * C(2)) + C(1));
  const Vector<C> signed_large = choose<C>(x < Vector<C>{}, -large, large);
  return choose<C>(size < splat(C(0.6)), small, signed_large);
}

KFORMER_SIMD_INLINE float natural_log(float x) { return __builtin_logf(x); }
KFORMER_SIMD_INLINE double natural_log(double x) { return __builtin_log(x); }

}  // namespace kformer::Impl::simd::KFORMER_ISA
