// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/vector.hpp"

/// \file
/// The exponential of softmax.

namespace kformer::Impl::simd::KFORMER_ISA {

/// `exp(scale · (score − most))` for scores up to `most`, exactly 1 where they are equal; near the least normal
/// number it may be 0 or subnormal, below that and for a score of −∞ it is 0; NaN stays NaN.
template <class C>
class WeightExp {
 public:
  // A scale of 0 would make NaN of −∞.
  KFORMER_SIMD_INLINE explicit WeightExp(C scale) : m_scale(splat(scale > C(0) ? scale : least_scale)) {}

  /// Lower scores have weight 0.
  KFORMER_SIMD_INLINE Vector<C> threshold(Vector<C> most) const { return most; }
  KFORMER_SIMD_INLINE Vector<C> operator()(Vector<C> score, Vector<C> most, Vector<C>) const {
    return exp<C>((score - most) * m_scale);
  }

 private:
  static constexpr C least_scale = sizeof(C) == 4 ? C(__FLT_DENORM_MIN__) : C(__DBL_DENORM_MIN__);

  Vector<C> m_scale;
};

#if defined(__AVX512F__)

// 2ʳ − 1 = r·q(r) for 0 ≤ r < 1, q minimax for the relative error of 2ʳ: 1.4e-8.
inline constexpr float power_of_two[] = {0x1.62e42cp-1f, 0x1.ebfd58p-3f,  0x1.c68912p-5f,
                                         0x1.3d0b92p-7f, 0x1.46d64ep-10f, 0x1.c54174p-13f};

/// 2ʸ = 2ⁿ·2ʳ with n = ⌊y⌋: one instruction makes r, and one multiplies by 2ⁿ. Good to one ulp and 1e-7·|y|.
template <>
class WeightExp<float> {
 public:
  KFORMER_SIMD_INLINE explicit WeightExp(float scale)
      : m_scale(lesser<float>(splat(scale * 0x1.715476p+0f), splat(Infinity<float>::largest))),
        m_lowest(splat(Exponential<float>::lowest / scale)) {}

  KFORMER_SIMD_INLINE Vector<float> threshold(Vector<float> most) const {
    return greater<float>(most + m_lowest, splat(-Infinity<float>::largest));
  }
  KFORMER_SIMD_INLINE Vector<float> operator()(Vector<float> score, Vector<float> most,
                                               Vector<float> threshold) const {
    const __mmask16 counts = _mm512_cmp_ps_mask(score, threshold, _CMP_NLT_UQ);
    const Vector<float> y = _mm512_maskz_sub_ps(counts, score, most) * m_scale;
    const Vector<float> r = _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    Vector<float> q = splat(power_of_two[5]);
    KFORMER_SIMD_UNROLL
    for (int i = 4; i >= 0; --i) q = q * r + splat(power_of_two[i]);
    return _mm512_maskz_scalef_ps(counts, q * r + splat(1.f), y);
  }

 private:
  Vector<float> m_scale, m_lowest;
};

#endif

}  // namespace kformer::Impl::simd::KFORMER_ISA
