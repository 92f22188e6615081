// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/vector.hpp"

/// \file
/// Rows of storage types and vectors of the type of arithmetic.

namespace kformer::Impl::simd::KFORMER_ISA {

/// The bits of kformer::bf16 and kformer::f16, which belong to Kokkos.
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

template <class T>
struct ArithmeticOf {
  using type = float;
};
template <>
struct ArithmeticOf<double> {
  using type = double;
};
template <class T>
using Arithmetic = typename ArithmeticOf<T>::type;

/// One `Value` for each floating-point storage type, in the order of DType.
template <class Value>
struct ByStorage {
  Value of[4];
};
/// `make.operator()<T>()` for every floating-point storage type T.
template <class Make>
constexpr auto by_storage(Make make) {
  const ByStorage<decltype(make.template operator()<float>())> all = {
    {make.template operator()<float>(), make.template operator()<Bf16>(), make.template operator()<F16>(),
     make.template operator()<double>()}
  };
  return all;
}

using Word = VectorOf<std::uint32_t, width<float>>::type;
using HalfWord = VectorOf<std::uint16_t, width<float>>::type;

template <class T>
KFORMER_SIMD_INLINE Vector<Arithmetic<T>> load_stored(const T* from) {
  return load(from);
}
/// Floats from their upper halves.
KFORMER_SIMD_INLINE Vector<float> widened(HalfWord half) {
#if defined(__AVX512F__)
  // One permutation in place of a conversion and a shift, which wait for the same units.
  const __m512i upper = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0,  //
                                         7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
  const __m512i lower = _mm512_castsi256_si512(as_bits<__m256i>(half));
  return as_bits<Vector<float>>(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, upper, lower));
#else
  // GCC 12 converts integers in halves of a vector and joins them.
#if defined(__AVX2__)
  const Word word = as_bits<Word>(_mm256_cvtepu16_epi32(as_bits<__m128i>(half)));
#else
  const Word word = __builtin_convertvector(half, Word);
#endif
  return as_bits<Vector<float>>(word << 16);
#endif
}
template <>
KFORMER_SIMD_INLINE Vector<float> load_stored<Bf16>(const Bf16* from) {
  HalfWord half;
  std::memcpy(&half, from, sizeof(half));
  return widened(half);
}
template <>
KFORMER_SIMD_INLINE Vector<float> load_stored<F16>(const F16* from) {
  HalfWord half;
  std::memcpy(&half, from, sizeof(half));
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(as_bits<__m256i>(half));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(as_bits<__m128i>(half));
#else
  // The bits in a float have the value times 2^-112, subnormals too; infinity and NaN need their exponent.
  const Word bits = __builtin_convertvector(half, Word), magnitude = bits & 0x7fffu;
  const Word value = as_bits<Word>(as_bits<Vector<float>>(magnitude << 13) * splat(0x1p112f));
  const Word special = (magnitude >= 0x7c00u) & 0x7f800000u;
  return as_bits<Vector<float>>(((bits & 0x8000u) << 16) | special | value);
#endif
}

template <class T>
KFORMER_SIMD_INLINE void store_stored(T* to, Vector<Arithmetic<T>> x) {
  store(to, x);
}
/// The bits of the nearest bf16. AVX512_BF16 takes numbers below the normal ones for 0.
KFORMER_SIMD_INLINE Word nearest_bf16(Vector<float> x) {
#if defined(__AVX512BF16__)
  return as_bits<Word>(_mm512_cvtepu16_epi32(as_bits<__m256i>(_mm512_cvtneps_pbh(x))));
#else
  const Word u = as_bits<Word>(x), nearest = u + (0x7fffu + ((u >> 16) & 1u)), quiet_nan = u | 0x400000u;
  return (x != x ? quiet_nan : nearest) >> 16;
#endif
}
/// The nearest bf16 as floats.
KFORMER_SIMD_INLINE Vector<float> rounded_to_bf16(Vector<float> x) {
#if defined(__AVX512BF16__)
  return widened(as_bits<HalfWord>(_mm512_cvtneps_pbh(x)));
#else
  return as_bits<Vector<float>>(nearest_bf16(x) << 16);
#endif
}
template <>
KFORMER_SIMD_INLINE void store_stored<Bf16>(Bf16* to, Vector<float> x) {
#if defined(__AVX512BF16__)
  const __m256bh half = _mm512_cvtneps_pbh(x);
#elif defined(__AVX512F__)
  const __m256i half = _mm512_cvtepi32_epi16(as_bits<__m512i>(nearest_bf16(x)));
#elif defined(__AVX2__)
  const __m256i lanes = as_bits<__m256i>(nearest_bf16(x));
  const __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
#else
  const HalfWord half = __builtin_convertvector(nearest_bf16(x), HalfWord);
#endif
  std::memcpy(to, &half, sizeof(half));
}
template <>
KFORMER_SIMD_INLINE void store_stored<F16>(F16* to, Vector<float> x) {
#if defined(__AVX512F__)
  const __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
  const __m128i half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
#else
  // As in kformer::f16, where each step is explained.
  const Word u = as_bits<Word>(x), magnitude = u & 0x7fffffffu;
  const auto choose = [](Word condition, Word yes, Word no) { return (condition & yes) | (~condition & no); };
  const Word is_small = as_bits<Word>(magnitude < 0x38800000u);
  const Word normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const Word subnormal =
      as_bits<Word>(as_bits<Vector<float>>(is_small & magnitude) + splat(0.5f)) - 0x3f000000u;
  Word result = choose(is_small, subnormal, normal);
  result = choose(as_bits<Word>(magnitude >= 0x477ff000u), Word{} + 0x7c00u, result);
  result = choose(as_bits<Word>(magnitude > 0x7f800000u), Word{} + 0x7e00u, result);
  const HalfWord half = __builtin_convertvector(result | ((u >> 16) & 0x8000u), HalfWord);
#endif
  std::memcpy(to, &half, sizeof(half));
}

/// Two vectors of numbers from memory, in no particular order.
template <class T>
struct Two {
  Vector<Arithmetic<T>> x[2];
};
template <class T>
KFORMER_SIMD_INLINE Two<T> load_two(const T* from) {
  return {load_stored(from), load_stored(from + width<Arithmetic<T>>)};
}
/// Neighbours of 16 bits are halves of one word: no lane is widened.
template <>
KFORMER_SIMD_INLINE Two<Bf16> load_two<Bf16>(const Bf16* from) {
  Word words;
  std::memcpy(&words, from, sizeof(words));
  return {as_bits<Vector<float>>(words << 16), as_bits<Vector<float>>(words & 0xffff0000u)};
}

/// The first `n` numbers of a vector from memory, and zeros.
template <class T>
KFORMER_SIMD_INLINE Vector<Arithmetic<T>> load_part(const T* from, int n) {
  T part[width<Arithmetic<T>>] = {};
  std::memcpy(part, from, n * sizeof(T));
  return load_stored(part);
}
/// The first `n` numbers of a vector to memory.
template <class T>
KFORMER_SIMD_INLINE void store_part(T* to, Vector<Arithmetic<T>> x, int n) {
  T part[width<Arithmetic<T>>];
  store_stored(part, x);
  std::memcpy(to, part, n * sizeof(T));
}

/// `n` rounded up to whole vectors.
template <class C>
constexpr int padded(int n) {
  return (n + width<C> - 1) / width<C> * width<C>;
}

/// `n` numbers, and zeros up to a whole vector.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void load_row(const T* from, int n, C* to) {
  int i = 0;
  for (; i + width<C> <= n; i += width<C>) store<C>(to + i, load_stored(from + i));
  if (i < n) store<C>(to + i, load_part(from + i, n - i));
}

/// `n` numbers; reads whole vectors.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void store_row(const C* from, int n, T* to) {
  int i = 0;
  for (; i + width<C> <= n; i += width<C>) store_stored(to + i, load(from + i));
  if (i < n) store_part(to + i, load(from + i), n - i);
}

/// Adds `factor` times `n` numbers; reads whole vectors of `from`.
template <class C>
KFORMER_SIMD_INLINE void add_row(const C* from, int n, C factor, C* to) {
  int i = 0;
  for (; i + width<C> <= n; i += width<C>) store<C>(to + i, load(to + i) + load(from + i) * factor);
  for (; i < n; ++i) to[i] += from[i] * factor;
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
