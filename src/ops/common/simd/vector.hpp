// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/// \file
/// Vectors of one instruction set. A file that includes this is compiled once per instruction set, with its
/// flags and with KFORMER_ISA defined as its name; everything lives in a namespace of that name, so that the
/// linker never takes a function compiled for a newer processor. For the same reason nothing here includes
/// Kokkos or headers with inline functions of external linkage.

// Register blocks stay in registers only if every loop over them is unrolled.
#if defined(__clang__)
#define KFORMER_SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define KFORMER_SIMD_UNROLL _Pragma("GCC unroll 64")
#endif

#define KFORMER_SIMD_INLINE inline __attribute__((always_inline))

namespace kformer::Impl::simd::KFORMER_ISA {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
inline constexpr int vector_registers = 32;
#elif defined(__AVX2__)
inline constexpr int vector_bytes = 32;
inline constexpr int vector_registers = 16;
#else
inline constexpr int vector_bytes = 16;
#if defined(__aarch64__)
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_registers = 16;
#endif
#endif

template <class C>
inline constexpr int width = vector_bytes / static_cast<int>(sizeof(C));

template <class C, int n>
  requires std::is_arithmetic_v<C>
struct VectorOf {
  typedef C type __attribute__((vector_size(n * sizeof(C))));
};
/// `width<C>` numbers.
template <class C>
using Vector = typename VectorOf<C, width<C>>::type;

template <std::size_t bytes>
struct IntegerOf;
template <>
struct IntegerOf<4> {
  using type = std::int32_t;
};
template <>
struct IntegerOf<8> {
  using type = std::int64_t;
};
/// As many bits as `C`.
template <class C>
using Integer = typename IntegerOf<sizeof(C)>::type;
/// As many integers; comparisons of vectors give these, −1 for true.
template <class C>
using IntegerVector = Vector<Integer<C>>;

KFORMER_SIMD_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
KFORMER_SIMD_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

template <class To, class From>
KFORMER_SIMD_INLINE To as_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof(y));
  return y;
}

template <class C>
KFORMER_SIMD_INLINE Vector<C> splat(C x) {
  return x - Vector<C>{};  // compilers make a broadcast of it; −0 stays −0
}
template <class C>
KFORMER_SIMD_INLINE Vector<C> load(const C* from) {
  Vector<C> x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
template <class C>
KFORMER_SIMD_INLINE void store(C* to, Vector<C> x) {
  std::memcpy(to, &x, sizeof(x));
}

/// 0, 1, 2, …
template <class C>
KFORMER_SIMD_INLINE Vector<C> ramp() {
  Vector<C> x;
  for (int i = 0; i < width<C>; ++i) x[i] = static_cast<C>(i);
  return x;
}

/// `b` where `a` is NaN, else the greater.
template <class C>
KFORMER_SIMD_INLINE Vector<C> greater(Vector<C> a, Vector<C> b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(C) == 4)
    return _mm512_max_ps(a, b);
  else
    return _mm512_max_pd(a, b);
#elif defined(__AVX2__)
  if constexpr (sizeof(C) == 4)
    return _mm256_max_ps(a, b);
  else
    return _mm256_max_pd(a, b);
#else
  return a > b ? a : b;
#endif
}

/// `b` where `a` is NaN, else the lesser.
template <class C>
KFORMER_SIMD_INLINE Vector<C> lesser(Vector<C> a, Vector<C> b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(C) == 4)
    return _mm512_min_ps(a, b);
  else
    return _mm512_min_pd(a, b);
#else
  return a < b ? a : b;
#endif
}

template <class C>
struct Infinity;
template <>
struct Infinity<float> {
  static constexpr float value = __builtin_inff(), largest = __FLT_MAX__;
};
template <>
struct Infinity<double> {
  static constexpr double value = __builtin_inf(), largest = __DBL_MAX__;
};

template <class C>
KFORMER_SIMD_INLINE Vector<C> choose(IntegerVector<C> condition, Vector<C> yes, Vector<C> no) {
  return condition ? yes : no;
}
/// A product that no multiply-add takes up: it is rounded by itself.
template <class V>
KFORMER_SIMD_INLINE V rounded(V product) {
#if __has_builtin(__builtin_assoc_barrier)
  return __builtin_assoc_barrier(product);
#elif defined(__clang__) && defined(__x86_64__)
  return __arithmetic_fence(product);
#else
  return product;
#endif
}
template <class C>
KFORMER_SIMD_INLINE Vector<C> magnitude(Vector<C> x) {
  return as_bits<Vector<C>>(as_bits<IntegerVector<C>>(x) & ~as_bits<IntegerVector<C>>(splat(C(-0.0))));
}

// eʳ − 1 = r·q(r) for |r| ≤ ln 2 / 2, q minimax for the relative error of eʳ among those with q(0) = 1, which
// no rounding of coefficients can spoil: 3.1e-9 (float), 3.6e-18 (double).
inline constexpr float exp_float[] = {
    1, 0.499999934517f, 0.166665206893f, 0.0416683873537f, 0.00836870989023f, 0.00138146140277f};
inline constexpr double exp_double[] = {1,
                                        0.50000000000000106168,
                                        0.16666666666666412766,
                                        0.04166666666653026542,
                                        0.0083333333334943401632,
                                        0.0013888888943597890059,
                                        0.0001984126950676291675,
                                        0.000024801493135948940754,
                                        2.7557586282125536488e-6,
                                        2.7630234016258447564e-7,
                                        2.5000067167501987255e-8};

template <class C>
struct Exponential;
template <>
struct Exponential<float> {
  static constexpr int degree = 5;
  static constexpr const float* q = exp_float;
  static constexpr float to_integer = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits
  static constexpr int mantissa = 23;
  static constexpr std::uint32_t one = 0x3f800000;
  static constexpr float lowest = -0x1.5d589ep+6f;  // ln 2⁻¹²⁶
  static constexpr float ln2_high = 0x1.62ep-1f, ln2_low = 0x1.0bfbe8p-15f;
};
template <>
struct Exponential<double> {
  static constexpr int degree = 10;
  static constexpr const double* q = exp_double;
  static constexpr double to_integer = 0x1.8p+52;
  static constexpr int mantissa = 52;
  static constexpr std::uint64_t one = 0x3ff0000000000000;
  static constexpr double lowest = -0x1.6232bdd7abcd2p+9;  // ln 2⁻¹⁰²²
  static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
};

/// eˣ for x < 88 (709 in double) to one ulp; 0 where eˣ is less than the normal numbers; NaN stays NaN.
template <class C>
KFORMER_SIMD_INLINE Vector<C> exp(Vector<C> argument) {
  using E = Exponential<C>;
  constexpr double log2_e = 1.44269504088896340736;
  const auto vanishes = argument < splat(E::lowest);
  // Numbers that n and 2ⁿ can hold, so that none of the operations is invalid.
  const Vector<C> x = greater<C>(splat<C>(E::lowest), argument);
  // eˣ = 2ⁿ·eʳ with n = round(x·log2 e), and ln 2 in two parts, because n·ln2_high is exact.
  const Vector<C> shifted = x * splat(C(log2_e)) + splat<C>(E::to_integer);
  const Vector<C> n = shifted - splat<C>(E::to_integer);
  const Vector<C> r = (x - n * splat<C>(E::ln2_high)) - n * splat<C>(E::ln2_low);
  Vector<C> q = splat<C>(E::q[E::degree]);
  KFORMER_SIMD_UNROLL
  for (int i = E::degree - 1; i >= 0; --i) q = q * r + splat<C>(E::q[i]);
#if defined(__AVX512F__)
  Vector<C> power;
  if constexpr (sizeof(C) == 4)
    power = _mm512_scalef_ps(q * r + splat(C(1)), n);
  else
    power = _mm512_scalef_pd(q * r + splat(C(1)), n);
  return choose<C>(vanishes, Vector<C>{}, power);
#else
  // Unsigned, because lanes that nobody reads may hold any number.
  using Bits = Vector<std::make_unsigned_t<Integer<C>>>;
  const auto power = as_bits<Vector<C>>((as_bits<Bits>(shifted) << E::mantissa) + E::one);
  return choose<C>(vanishes, Vector<C>{}, (q * r) * power + power);
#endif
}

template <class C>
KFORMER_SIMD_INLINE Vector<C> square_root(Vector<C> x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(C) == 4)
    return _mm512_sqrt_ps(x);
  else
    return _mm512_sqrt_pd(x);
#elif defined(__AVX2__)
  if constexpr (sizeof(C) == 4)
    return _mm256_sqrt_ps(x);
  else
    return _mm256_sqrt_pd(x);
#else
  for (int i = 0; i < width<C>; ++i) x[i] = sizeof(C) == 4 ? __builtin_sqrtf(x[i]) : __builtin_sqrt(x[i]);
  return x;
#endif
}

/// a·b + c, rounded once where the processor can: where two sums must agree to the last bit, the compiler is
/// not asked.
template <class C>
KFORMER_SIMD_INLINE Vector<C> fused_multiply_add(Vector<C> a, Vector<C> b, Vector<C> c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(C) == 4)
    return _mm512_fmadd_ps(a, b, c);
  else
    return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  if constexpr (sizeof(C) == 4)
    return _mm256_fmadd_ps(a, b, c);
  else
    return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

/// Halves are added until one lane is left. GCC makes scalar sums of the same in loops.
template <class C, int n, std::size_t... i>
KFORMER_SIMD_INLINE C sum_of_lanes(typename VectorOf<C, n>::type x, std::index_sequence<i...>) {
  if constexpr (n == 2) {
    return x[0] + x[1];
  } else {
    const auto half = __builtin_shufflevector(x, x, i...) + __builtin_shufflevector(x, x, (n / 2 + i)...);
    return sum_of_lanes<C, n / 2>(half, std::make_index_sequence<n / 4>{});
  }
}
/// The sum of the lanes.
template <class C>
KFORMER_SIMD_INLINE C sum_of(Vector<C> x) {
  return sum_of_lanes<C, width<C>>(x, std::make_index_sequence<width<C> / 2>{});
}

template <class C, std::size_t... i>
KFORMER_SIMD_INLINE Vector<C> zip_low(Vector<C> a, Vector<C> b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (i % 2 ? width<C> + i / 2 : i / 2)...);
}
template <class C, std::size_t... i>
KFORMER_SIMD_INLINE Vector<C> zip_high(Vector<C> a, Vector<C> b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (width<C> / 2 + (i % 2 ? width<C> + i / 2 : i / 2))...);
}

/// Transposes a square of `width<C>` vectors: zipping the halves log2(width) times.
template <class C>
KFORMER_SIMD_INLINE void transpose(Vector<C> (&x)[width<C>]) {
  constexpr auto indices = std::make_index_sequence<width<C>>{};
  KFORMER_SIMD_UNROLL
  for (int done = 1; done < width<C>; done *= 2) {
    Vector<C> y[width<C>];
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < width<C> / 2; ++i) {
      y[2 * i] = zip_low<C>(x[i], x[i + width<C> / 2], indices);
      y[2 * i + 1] = zip_high<C>(x[i], x[i + width<C> / 2], indices);
    }
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < width<C>; ++i) x[i] = y[i];
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
