// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/host/step.hpp"

/// \file
/// The step with states of 8 bits: blocks of 256 elements share a scale.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::AdamWMap;

inline constexpr int coded_block = 256;

using Lanes = IntegerVector<float>;

/// Of 256 numbers.
KFORMER_SIMD_INLINE Vector<float> look_up(const float* table, Lanes index) {
#if defined(__AVX512F__)
  // Permutations of the whole table are faster than gathers on AMD.
  const __m512i lanes = as_bits<__m512i>(index);
  __m512 x[8];
  KFORMER_SIMD_UNROLL
  for (int k = 0; k < 8; ++k)
    x[k] = _mm512_permutex2var_ps(_mm512_loadu_ps(table + 32 * k), lanes, _mm512_loadu_ps(table + 32 * k + 16));
  KFORMER_SIMD_UNROLL
  for (int half = 4; half > 0; half /= 2) {
    const __mmask16 upper = _mm512_test_epi32_mask(lanes, _mm512_set1_epi32(32 * half));
    KFORMER_SIMD_UNROLL
    for (int k = 0; k < half; ++k) x[k] = _mm512_mask_mov_ps(x[k], upper, x[k + half]);
  }
  return x[0];
#elif defined(__AVX2__)
  return _mm256_i32gather_ps(table, as_bits<__m256i>(index), 4);
#else
  Vector<float> x;
  for (int i = 0; i < width<float>; ++i) x[i] = table[index[i]];
  return x;
#endif
}

typedef VectorOf<std::uint8_t, width<float>>::type Codes;

// An intrinsic, because GCC 12 widens bytes one by one.
KFORMER_SIMD_INLINE Lanes load_codes(const std::uint8_t* from) {
  Codes codes;
  std::memcpy(&codes, from, sizeof(codes));
#if defined(__AVX512F__)
  return as_bits<Lanes>(_mm512_cvtepu8_epi32(as_bits<__m128i>(codes)));
#elif defined(__AVX2__)
  return as_bits<Lanes>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(as_bits<long long>(codes))));
#else
  return __builtin_convertvector(codes, Lanes);
#endif
}
KFORMER_SIMD_INLINE void store_codes(std::uint8_t* to, Lanes x) {
  const Codes codes = __builtin_convertvector(x, Codes);
  std::memcpy(to, &codes, sizeof(codes));
}

/// Lane by lane one of eight numbers.
KFORMER_SIMD_INLINE Vector<float> pick(const float (&table)[8], Lanes index) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(as_bits<__m512i>(index), _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
#elif defined(__AVX2__)
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), as_bits<__m256i>(index));
#else
  return look_up(table, index);
#endif
}

/// The decades of magnitudes, in which values are evenly spaced, from 1 to 7: in each, about
/// `slope · |x| + offset` values, at most `last`, lie between zero and x. Decade 0 is what is nearest to zero.
template <bool is_signed>
struct Decades {
  float slope[8], offset[8], last[8];
  float begin[8];  // the border below, or a little more: where estimates are too small they are put right
};
template <bool is_signed>
constexpr Decades<is_signed> decades() {
  constexpr double margin = 1.0 / 1024;  // so that rounding never makes an estimate too large
  Decades<is_signed> all{};
  double values = is_signed ? 1 : 2, top = 1e-6;
  for (int d = 1; d < 8; ++d) {
    all.slope[d] = static_cast<float>(values / 0.9 / top);
    all.offset[d] = static_cast<float>(values * (1 - 1 / 9.0) - margin);
    all.last[d] = static_cast<float>(2 * values - 1);
    all.begin[d] = static_cast<float>(top / 10 * (1 + 1.8 / values) * (1 + 1e-6));
    values *= 2;
    top *= 10;
  }
  all.begin[1] = is_signed ? 2.75e-7f * (1 + 1e-6f) : 0;
  return all;
}

/// From 2^-31 to 1, two octaves at a time: the decade they begin in, and where the next one begins.
struct DecadesByExponent {
  std::int32_t decade[16];
  float next[16];
};
template <bool is_signed>
constexpr DecadesByExponent decades_by_exponent(const Decades<is_signed>& all) {
  DecadesByExponent by_exponent{};
  float low = 0x1p-31f;
  for (int i = 0; i < 16; ++i, low *= 4) {
    int d = 0;
    while (d < 7 && all.begin[d + 1] < low) ++d;
    by_exponent.decade[i] = d;
    by_exponent.next[i] = d < 7 ? all.begin[d + 1] : 2;
  }
  return by_exponent;
}

template <bool is_signed>
KFORMER_SIMD_INLINE Lanes decade_of(Vector<float> size) {
  static constexpr Decades<is_signed> all = decades<is_signed>();
#if defined(__AVX512F__)
  static constexpr DecadesByExponent by_exponent = decades_by_exponent(all);
  const Lanes two_octaves = as_bits<Lanes>(greater<float>(size, splat(0x1p-31f))) >> 24;
  const __m512i index = as_bits<__m512i>(two_octaves);
  const Vector<float> next = _mm512_permutexvar_ps(index, _mm512_loadu_ps(by_exponent.next));
  const Lanes decade = as_bits<Lanes>(_mm512_permutexvar_epi32(index, _mm512_loadu_si512(by_exponent.decade)));
  return decade - (size > next);
#else
  Lanes decade = {};
  KFORMER_SIMD_UNROLL
  for (int d = 1; d < 8; ++d) decade -= size > splat(all.begin[d]);
  return decade;
#endif
}

/// The codes of quotients: an estimate that is right or one code short, and the border above it.
template <bool is_signed>
KFORMER_SIMD_INLINE Lanes codes_of(Vector<float> x, const AdamWMap& map) {
  static constexpr Decades<is_signed> all = decades<is_signed>();
  const Vector<float> size = magnitude<float>(x);
  const Lanes decade = decade_of<is_signed>(size);
  const Vector<float> estimate = size * pick(all.slope, decade) + pick(all.offset, decade);
  const Vector<float> last = pick(all.last, decade);
  const Lanes steps = __builtin_convertvector(estimate < last ? estimate : last, Lanes);
  Lanes code;
  if constexpr (is_signed)
    code = x < splat(0.0f) ? 126 - steps : 127 + steps;
  else
    code = steps - 1;
  code = code < 0 ? Lanes{} : code;
  code -= x > look_up(map.border, code);
  return code & (x == x);
}

/// The codes of a block and its scale, the largest magnitude. The bits of magnitudes are ordered like the
/// magnitudes, and NaN is above all of them.
template <bool is_signed>
KFORMER_SIMD_INLINE void encode(const float* numbers, int count, const AdamWMap& map, std::uint8_t* codes,
                                float* scale) {
  constexpr int n = width<float>;
  Lanes bits = {};
  for (int i = 0; i < count; i += n) {
    const Lanes mine = as_bits<Lanes>(magnitude<float>(load(numbers + i)));
    bits = mine > bits ? mine : bits;
  }
  std::int32_t largest = 0;
  for (int i = 0; i < n; ++i) largest = bits[i] > largest ? bits[i] : largest;
  *scale = as_bits<float>(largest);
  const Vector<float> divisor = splat(largest == 0 ? 1.0f : as_bits<float>(largest));
  int i = 0;
  for (; i + n <= count; i += n) store_codes(codes + i, codes_of<is_signed>(load(numbers + i) / divisor, map));
  if (i == count) return;
  std::uint8_t rest[n];
  store_codes(rest, codes_of<is_signed>(load(numbers + i) / divisor, map));
  std::memcpy(codes + i, rest, count - i);
}

template <class T>
void adamw_coded_step(const AdamWItem& item, std::int64_t begin, std::int64_t end, const AdamWNumbers& numbers,
                      const AdamWMap& m_map, const AdamWMap& v_map) {
  constexpr int n = width<float>;
  const AdamWRule<float> rule(numbers, item.weight_decay);
  alignas(64) float means[coded_block], squares[coded_block];
  for (; begin < end; begin += coded_block) {
    const AdamWPointers<T> at(item, begin);
    std::uint8_t *m = static_cast<std::uint8_t*>(item.m) + begin,
                 *v = static_cast<std::uint8_t*>(item.v) + begin;
    float *m_scale = item.m_scale + begin / coded_block, *v_scale = item.v_scale + begin / coded_block;
    const Vector<float> m_factor = splat(*m_scale), v_factor = splat(*v_scale);
    const int count = static_cast<int>(smaller(coded_block, end - begin));
    int i = 0;
    for (; i + n <= count; i += n) {
      Vector<float> mean = look_up(m_map.value, load_codes(m + i)) * m_factor,
                    square = look_up(v_map.value, load_codes(v + i)) * v_factor, w = at.load_weight(i);
      rule(load(at.gradient + i), mean, square, w);
      store<float>(means + i, mean);
      store<float>(squares + i, square);
      at.store_weight(i, w);
    }
    if (i < count) {
      const int rest = count - i;
      std::uint8_t m_rest[n] = {}, v_rest[n] = {};
      std::memcpy(m_rest, m + i, rest);
      std::memcpy(v_rest, v + i, rest);
      Vector<float> mean = look_up(m_map.value, load_codes(m_rest)) * m_factor,
                    square = look_up(v_map.value, load_codes(v_rest)) * v_factor, w = at.load_weight(i, rest);
      rule(load_part(at.gradient + i, rest), mean, square, w);
      at.store_weight(i, w, rest);
      // Padding after the last element must not become the largest.
      float lanes[n];
      store<float>(lanes, mean);
      store<float>(means + i, load_part(lanes, rest));
      store<float>(lanes, square);
      store<float>(squares + i, load_part(lanes, rest));
    }
    encode<true>(means, count, m_map, m, m_scale);
    encode<false>(squares, count, v_map, v, v_scale);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
