// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/host/arguments.hpp"
#include "ops/common/simd/storage.hpp"

/// \file
/// The step on vectors of elements.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::AdamWItem;
using host::AdamWNumbers;

/// The step of one vector of elements; see ops/adamw/kokkos.hpp.
template <class C>
struct AdamWRule {
  Vector<C> rate, first, second, first_correction, second_correction, eps, factor, decay;

  KFORMER_SIMD_INLINE AdamWRule(const AdamWNumbers& n, double weight_decay)
      : rate(splat(static_cast<C>(n.learning_rate))),
        first(splat(static_cast<C>(n.first))),
        second(splat(static_cast<C>(n.second))),
        first_correction(splat(static_cast<C>(n.first_correction))),
        second_correction(splat(static_cast<C>(n.second_correction))),
        eps(splat(static_cast<C>(n.eps))),
        factor(splat(static_cast<C>(n.gradient_factor))),
        decay(splat(static_cast<C>(weight_decay))) {}

  KFORMER_SIMD_INLINE void operator()(Vector<C> gradient, Vector<C>& m, Vector<C>& v, Vector<C>& w) const {
    const Vector<C> g = gradient * factor;
    m += first * (g - m);
    v += second * (g * g - v);
    w -= rate * (m * first_correction / (square_root<C>(v) * second_correction + eps) + decay * w);
  }
};

/// The arrays of a step from element `at` on.
template <class T>
struct AdamWPointers {
  using C = Arithmetic<T>;
  static constexpr bool is_rounded = sizeof(T) == 2;
  const C* gradient;
  C* exact;  // null where a 16-bit weight has no master
  T* rounded;

  KFORMER_SIMD_INLINE AdamWPointers(const AdamWItem& item, std::int64_t at)
      : gradient(static_cast<const C*>(item.gradient) + at),
        exact(static_cast<C*>(is_rounded ? item.master : item.weight)),
        rounded(static_cast<T*>(item.weight) + at) {
    if (exact) exact += at;
  }

  /// The weights of a whole vector.
  KFORMER_SIMD_INLINE Vector<C> load_weight(std::int64_t i) const {
    return exact ? load<C>(exact + i) : load_stored<T>(rounded + i);
  }
  KFORMER_SIMD_INLINE void store_weight(std::int64_t i, Vector<C> w) const {
    if (exact) store<C>(exact + i, w);
    if constexpr (is_rounded) store_stored(rounded + i, w);
  }
  /// The first `n` weights of a vector.
  KFORMER_SIMD_INLINE Vector<C> load_weight(std::int64_t i, int n) const {
    return exact ? load_part(exact + i, n) : load_part(rounded + i, n);
  }
  KFORMER_SIMD_INLINE void store_weight(std::int64_t i, Vector<C> w, int n) const {
    if (exact) store_part<C>(exact + i, w, n);
    if constexpr (is_rounded) store_part(rounded + i, w, n);
  }
};

template <class T>
void adamw_step(const AdamWItem& item, std::int64_t begin, std::int64_t end, const AdamWNumbers& numbers) {
  using C = Arithmetic<T>;
  const AdamWRule<C> rule(numbers, item.weight_decay);
  const AdamWPointers<T> at(item, begin);
  C *m = static_cast<C*>(item.m) + begin, *v = static_cast<C*>(item.v) + begin;
  const std::int64_t count = end - begin;
  std::int64_t i = 0;
  for (; i + width<C> <= count; i += width<C>) {
    Vector<C> mean = load<C>(m + i), square = load<C>(v + i), w = at.load_weight(i);
    rule(load<C>(at.gradient + i), mean, square, w);
    store<C>(m + i, mean);
    store<C>(v + i, square);
    at.store_weight(i, w);
  }
  if (i == count) return;
  const int rest = static_cast<int>(count - i);
  Vector<C> mean = load_part(m + i, rest), square = load_part(v + i, rest), w = at.load_weight(i, rest);
  rule(load_part(at.gradient + i, rest), mean, square, w);
  store_part<C>(m + i, mean, rest);
  store_part<C>(v + i, square, rest);
  at.store_weight(i, w, rest);
}

/// Numbers of type C in double.
template <class C>
KFORMER_SIMD_INLINE Vector<double> load_wide(const C* from) {
  typename VectorOf<C, width<double>>::type x;
  std::memcpy(&x, from, sizeof(x));
#if defined(__AVX512F__)
  // An intrinsic, because GCC 12 converts each half by itself.
  if constexpr (sizeof(C) == 4) return _mm512_cvtps_pd(x);
#endif
  return __builtin_convertvector(x, Vector<double>);
}

/// The sum of the squares of gradients of type C, in double.
template <class C>
double sum_of_squares(const void* gradient, std::int64_t begin, std::int64_t end) {
  constexpr int n = width<double>, accumulators = 8;
  const C* from = static_cast<const C*>(gradient) + begin;
  const std::int64_t count = end - begin;
  Vector<double> sums[accumulators] = {};
  std::int64_t i = 0;
  for (; i + n * accumulators <= count; i += n * accumulators) {
    KFORMER_SIMD_UNROLL
    for (int a = 0; a < accumulators; ++a) {
      const Vector<double> wide = load_wide(from + i + a * n);
      sums[a] += wide * wide;
    }
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(from[i]) * static_cast<double>(from[i]);
  KFORMER_SIMD_UNROLL
  for (int step = accumulators / 2; step > 0; step /= 2) {
    KFORMER_SIMD_UNROLL
    for (int a = 0; a < step; ++a) sums[a] += sums[a + step];
  }
  for (int lane = 0; lane < n; ++lane) sum += sums[0][lane];
  return sum;
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
