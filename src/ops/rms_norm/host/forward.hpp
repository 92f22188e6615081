// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/row_access.hpp"
#include "ops/rms_norm/host/arguments.hpp"

/// \file
/// RMSNorm forward: a row is in the caches between the sum of its squares and its scaling.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::RmsNormForwardArguments;

/// What is normalised: a row of x, or of x + residual as it will be stored. It is added again in each pass over
/// the row, so that non-temporal stores can write the sum.
template <class T, bool fused>
struct NormInput {
  const T *x, *residual;

  template <class Part>
  KFORMER_SIMD_INLINE Vector<Arithmetic<T>> at(std::int64_t i, Part part) const {
    if constexpr (fused)
      return rounded<T>(part.load(x + i) + part.load(residual + i));
    else
      return part.load(x + i);
  }
};

/// Mean squares from which on squares that underflow do not count.
template <class C>
inline constexpr C smallest_mean_square = sizeof(C) == 4 ? C(0x1p-100) : C(0x1p-900);

template <class C>
struct PowerOfTwo;
template <>
struct PowerOfTwo<float> {
  static constexpr float smallest = __FLT_MIN__;
  static constexpr std::int32_t exponent = 0x7f800000;
};
template <>
struct PowerOfTwo<double> {
  static constexpr double smallest = __DBL_MIN__;
  static constexpr std::int64_t exponent = 0x7ff0000000000000;
};

/// 1 / √(mean square + eps) = power · rest.
template <class C>
struct NormScale {
  C power, rest;
};

/// A row whose squares leave the range of C is scaled by a power of two; a row with infinities or NaN has the
/// result that it has. What is done once per row is done in double, so that the scale is rounded once.
template <class C, class Input>
KFORMER_SIMD_INLINE NormScale<C> norm_scale(const Input& row, std::int64_t n, double eps) {
  const auto mean_square = [&](C power) __attribute__((always_inline)) {
    const C squares = sum_over<C>(n, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
      const Vector<C> x = row.at(i, part) * splat(power);
      return x * x;
    });
    return static_cast<double>(squares) / static_cast<double>(n) + eps * power * power;
  };
  C power = 1;
  double mean = mean_square(power);
  if (mean < smallest_mean_square<C> || mean > Infinity<C>::largest) {
    Vector<C> greatest = splat(PowerOfTwo<C>::smallest);
    for_each_vector<C>(n, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
      greatest = greater<C>(magnitude<C>(row.at(i, part)), greatest);
    });
    C most = static_cast<C>(__builtin_sqrt(eps));
    for (int i = 0; i < width<C>; ++i) most = greatest[i] > most ? greatest[i] : most;
    if (most <= Infinity<C>::largest) {
      power = C(1) / as_bits<C>(as_bits<Integer<C>>(most) & PowerOfTwo<C>::exponent);
      mean = mean_square(power);
    }
  }
  return {power, static_cast<C>(1 / __builtin_sqrt(mean))};
}

template <class T, bool fused>
KFORMER_SIMD_INLINE NormInput<T, fused> norm_input(const RmsNormForwardArguments& p, std::int64_t row) {
  const host::HeadStrides& s = p.strides;
  return {row_of<T>(p.x, s.token(row)) + s.head(row) * s.x, row_of<T>(p.residual, row)};
}

/// The prefetch distance in elements.
struct NormAhead {
  std::int64_t x, residual;
};

template <class T, bool fused, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void norm_row(const RmsNormForwardArguments& p, std::int64_t row, NormScale<C> scale,
                                  const NormAhead& ahead) {
  const NormInput<T, fused> in = norm_input<T, fused>(p, row);
  const T* weight = static_cast<const T*>(p.weight);
  const host::HeadStrides& s = p.strides;
  const RowWriter<T, fused ? 2 : 1> sum(p.sum, row), y(p.y, s.token(row), s.head(row) * s.y);
  const Vector<C> first = splat(scale.power), second = splat(scale.rest);
  for_each_vector<C>(p.hidden, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
    __builtin_prefetch(in.x + i + ahead.x, 0, 2);
    if constexpr (fused) __builtin_prefetch(in.residual + i + ahead.residual, 0, 2);
    const Vector<C> x = in.at(i, part);
    if constexpr (fused) sum.store(i, x, part);
    y.store(i, x * first * second * part.load(weight + i), part);
  });
}

/// Several rows in each pass where they are short: a scale takes long, several take hardly longer.
template <class T, bool fused>
void norm_rows(const RmsNormForwardArguments& p, std::int64_t first_row, std::int64_t end) {
  using C = Arithmetic<T>;
  constexpr std::int64_t most = 8, elements = 1024;
  const std::int64_t rows = larger(1, smaller(most, elements / larger(1, p.hidden)));
  const NormAhead ahead{rows_ahead<T>(p.x), rows_ahead<T>(p.residual)};
  NormScale<C> scale[most];
  for (; first_row < end; first_row += rows) {
    const std::int64_t count = smaller(rows, end - first_row);
    for (std::int64_t i = 0; i < count; ++i) {
      scale[i] = norm_scale<C>(norm_input<T, fused>(p, first_row + i), p.hidden, p.eps);
      static_cast<C*>(p.rstd)[first_row + i] = scale[i].power * scale[i].rest;
    }
    for (std::int64_t i = 0; i < count; ++i) norm_row<T, fused>(p, first_row + i, scale[i], ahead);
  }
}

template <class T>
void rms_norm_forward(const RmsNormForwardArguments& p, std::int64_t first_row, std::int64_t end) {
  if (p.residual.data)
    norm_rows<T, true>(p, first_row, end);
  else
    norm_rows<T, false>(p, first_row, end);
  end_streams();
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
