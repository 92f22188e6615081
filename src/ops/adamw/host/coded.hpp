// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/host/step.hpp"

/// \file
/// The step with states of 8 bits: blocks of 256 elements share a scale.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::AdamWMap;

inline constexpr int coded_block = 256;

using Lanes = IntegerVector<float>;

KFORMER_SIMD_INLINE Vector<float> look_up(const float* table, Lanes index) {
#if defined(__AVX512F__)
  return _mm512_i32gather_ps(as_bits<__m512i>(index), table, 4);
#elif defined(__AVX2__)
  return _mm256_i32gather_ps(table, as_bits<__m256i>(index), 4);
#else
  Vector<float> x;
  for (int i = 0; i < width<float>; ++i) x[i] = table[index[i]];
  return x;
#endif
}

typedef VectorOf<std::uint8_t, width<float>>::type Codes;

KFORMER_SIMD_INLINE Lanes load_codes(const std::uint8_t* from) {
  Codes codes;
  std::memcpy(&codes, from, sizeof(codes));
  return __builtin_convertvector(codes, Lanes);
}
KFORMER_SIMD_INLINE void store_codes(std::uint8_t* to, Lanes x) {
  const Codes codes = __builtin_convertvector(x, Codes);
  std::memcpy(to, &codes, sizeof(codes));
}

/// Where the codes of a decade of magnitudes lie: about `slope · |x| + offset` codes from the code of zero.
template <bool is_signed>
struct Decades {
  static constexpr int count = 7,
                       first = is_signed ? 1 : 2;  // codes in the first decade; each has twice as many
  float slope[count], offset[count], begin[count];
};
template <bool is_signed>
constexpr Decades<is_signed> decades() {
  Decades<is_signed> all{};
  double codes = all.first, top = 1e-6;
  for (int d = 0; d < all.count; ++d) {
    all.slope[d] = static_cast<float>(codes / 0.9 / top);
    all.offset[d] = static_cast<float>(codes * (1 - 1 / 9.0));
    all.begin[d] = static_cast<float>(top / 10);
    codes *= 2;
    top *= 10;
  }
  return all;
}

/// The codes of quotients. An estimate that is at most one code off is put right by the borders beside it.
template <bool is_signed>
KFORMER_SIMD_INLINE Lanes codes_of(Vector<float> x, const AdamWMap& map) {
  constexpr Decades<is_signed> all = decades<is_signed>();
  const Vector<float> size = magnitude<float>(x);
  Vector<float> slope = splat(all.slope[0]), offset = splat(all.offset[0]);
  KFORMER_SIMD_UNROLL
  for (int d = 1; d < all.count; ++d) {
    const Lanes beyond = size >= splat(all.begin[d]);
    slope = choose<float>(beyond, splat(all.slope[d]), slope);
    offset = choose<float>(beyond, splat(all.offset[d]), offset);
  }
  const Lanes steps = __builtin_convertvector(size * slope + offset, Lanes);
  Lanes code;
  if constexpr (is_signed)
    code = x < splat(0.0f) ? 127 - steps : 127 + steps;
  else
    code = steps - 1;
  code = code < 0 ? Lanes{} : code;
  code = code > 255 ? Lanes{} + 255 : code;
  const Lanes above = x > look_up(map.border, code), within = x > look_up(map.border - 1, code);
  code = code - above - (within + 1);
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
                    square = look_up(v_map.value, load_codes(v + i)) * v_factor, w = load(at.exact + i);
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
                    square = look_up(v_map.value, load_codes(v_rest)) * v_factor,
                    w = load_some(at.exact + i, rest);
      rule(load_some(at.gradient + i, rest), mean, square, w);
      at.store_weight(i, w, rest);
      // What lies behind the last element must not become the largest.
      float lanes[n];
      store<float>(lanes, mean);
      store<float>(means + i, load_some(lanes, rest));
      store<float>(lanes, square);
      store<float>(squares + i, load_some(lanes, rest));
    }
    encode<true>(means, count, m_map, m, m_scale);
    encode<false>(squares, count, v_map, v, v_scale);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
