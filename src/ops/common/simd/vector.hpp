// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

// 2^f − 1 = f·q(f) for |f| ≤ 1/2, q minimax for the relative error of 2^f: 2.6e-9 (float), 1.8e-17 (double).
inline constexpr float exp2_float[] = {0.693147214968460880f,   0.240226527829138784f,
                                       0.0555031055017237646f,  0.00961769296934817745f,
                                       0.00134066442085492397f, 0.000155946789617534089f};
inline constexpr double exp2_double[] = {
    0.69314718055994569674,   0.24022650695910098006,    0.055504108664790395285,    0.0096181291076070027126,
    0.0013333558153439790219, 0.00015403530441571566745, 0.000015252727385362691963, 1.3215442675675045324e-6,
    1.018064758803700299e-7,  7.0725703435184476606e-9,  4.0780828155502331466e-10};

template <class C>
struct Exp2;
template <>
struct Exp2<float> {
  static constexpr int degree = 5;
  static constexpr const float* q = exp2_float;
  static constexpr float to_integer = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits
  static constexpr int mantissa = 23;
  static constexpr std::int32_t one = 0x3f800000;
  static constexpr float lowest = -126;
};
template <>
struct Exp2<double> {
  static constexpr int degree = 10;
  static constexpr const double* q = exp2_double;
  static constexpr double to_integer = 0x1.8p+52;
  static constexpr int mantissa = 52;
  static constexpr std::int64_t one = 0x3ff0000000000000;
  static constexpr double lowest = -1022;
};

/// 2ˣ for x < 128 (1024 in double) to one ulp; the smallest normal number below that; NaN stays NaN.
template <class C>
KFORMER_SIMD_INLINE Vector<C> exp2(Vector<C> x) {
  using E = Exp2<C>;
  x = greater<C>(splat<C>(E::lowest), x);
  const Vector<C> shifted = x + splat<C>(E::to_integer);
  const Vector<C> f = x - (shifted - splat<C>(E::to_integer));
  Vector<C> q = splat<C>(E::q[E::degree]);
  KFORMER_SIMD_UNROLL
  for (int i = E::degree - 1; i >= 0; --i) q = q * f + splat<C>(E::q[i]);
  const auto power = as_bits<Vector<C>>((as_bits<IntegerVector<C>>(shifted) << E::mantissa) + E::one);
  return (q * f) * power + power;
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
