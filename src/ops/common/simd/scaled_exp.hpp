// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/vector.hpp"

/// \file
/// Exponentials that are multiplied and added to something: where passes over memory would wait for `exp`.

namespace kformer::Impl::simd::KFORMER_ISA {

/// `factor·eˣ + addend` for x ≤ 88 (709 in double), eˣ to one ulp; what is below the normal numbers may be 0,
/// −∞ gives 0, NaN stays NaN.
template <class C>
class ScaledExp {
 public:
  KFORMER_SIMD_INLINE explicit ScaledExp(C factor) : m_factor(splat(factor)) {}
  KFORMER_SIMD_INLINE Vector<C> plus(Vector<C> addend, Vector<C> x) const {
    return exp<C>(x) * m_factor + addend;
  }
  /// The same for |x| ≤ 80.
  KFORMER_SIMD_INLINE Vector<C> plus_small(Vector<C> addend, Vector<C> x) const { return plus(addend, x); }

 private:
  Vector<C> m_factor;
};

template <class C>
struct FastScaledExpOf {
  using type = ScaledExp<C>;
};

#if defined(__AVX512F__)

// 2^(i/32) in two registers: one instruction looks up a value for each lane.
inline constexpr float powers_of_two[] = {
    1.000000000f, 1.021897197f, 1.044273734f, 1.067140460f, 1.090507746f, 1.114386797f, 1.138788581f,
    1.163724899f, 1.189207077f, 1.215247393f, 1.241857767f, 1.269050956f, 1.296839595f, 1.325236678f,
    1.354255557f, 1.383909941f, 1.414213538f, 1.445180774f, 1.476826191f, 1.509164453f, 1.542210817f,
    1.575980902f, 1.610490322f, 1.645755529f, 1.681792855f, 1.718619347f, 1.756252170f, 1.794709086f,
    1.834008098f, 1.874167681f, 1.915206552f, 1.957144141f};

/// eˣ = 2ⁿ·2ʳ, n a multiple of 1/32 and |r| ≤ 1/64. 2ʳ = 1 + r·(q₀ + q₁·r) is minimax, to 5.4e-8; with
/// roundings eˣ has a relative error of 2.4e-7 + 1.4e-8·|x|.
class TabledScaledExp {
 public:
  KFORMER_SIMD_INLINE explicit TabledScaledExp(float factor)
      : m_low(load(powers_of_two)),
        m_high(load(powers_of_two + 16)),
        m_factor(splat(factor)),
        m_q0(splat(factor * 0.6931573748588562f)),
        m_q1(splat(factor * 0.24023181200027466f)) {}

  KFORMER_SIMD_INLINE Vector<float> plus(Vector<float> addend, Vector<float> x) const {
    return plus_small(addend, greater<float>(splat(-200.f), x));
  }
  KFORMER_SIMD_INLINE Vector<float> plus_small(Vector<float> addend, Vector<float> x) const {
    const Vector<float> to_step = splat(0x1.8p+18f);  // adding it leaves 32·n in the low bits
    const Vector<float> log2_e = splat(0x1.715476p+0f);
    const Vector<float> shifted = fused_multiply_add<float>(x, log2_e, to_step), n = shifted - to_step;
    const Vector<float> r = fused_multiply_add<float>(x, log2_e, -n);
    const Vector<float> power =
        _mm512_scalef_ps(_mm512_permutex2var_ps(m_low, as_bits<__m512i>(shifted), m_high), n);
    const Vector<float> rest = fused_multiply_add<float>(fused_multiply_add<float>(m_q1, r, m_q0), r, m_factor);
    return fused_multiply_add<float>(power, rest, addend);
  }

 private:
  Vector<float> m_low, m_high, m_factor, m_q0, m_q1;
};

template <>
struct FastScaledExpOf<float> {
  using type = TabledScaledExp;
};

#endif

/// For sums of many exponentials, and for results of 16 bits.
template <class C>
using FastScaledExp = typename FastScaledExpOf<C>::type;

/// 1/x, both of them normal numbers, to one ulp.
KFORMER_SIMD_INLINE Vector<float> reciprocal(Vector<float> x) {
#if defined(__AVX512F__)
  // The estimate is good to 2⁻¹⁴; a Newton step squares that.
  const Vector<float> estimate = _mm512_rcp14_ps(x);
  const Vector<float> off = fused_multiply_add<float>(-x, estimate, splat(1.f));
  return fused_multiply_add<float>(estimate, off, estimate);
#else
  return 1.f / x;
#endif
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
