// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kformer/core/scalar.hpp"

/// \file
/// The tolerance rule of tests and drivers. With `ref` the oracle on the rounded inputs and `naive` the
/// textbook algorithm with every array rounded to T,
///
///     max|out − ref| ≤ max(2·max|naive − ref|, ulp(max|ref|))   and
///     rms(out − ref) ≤ max(2·rms(naive − ref), ½ ulp(rms(ref))).
///
/// The ulps are those of the output's storage type: an output that is merely rounded always passes.

namespace kformer {

/// The spacing of numbers of storage type `dtype` at magnitude `x`.
inline long double ulp(DType dtype, long double x) {
  const int digits = dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
  const int lowest = dtype == DType::f64 ? -1022 : dtype == DType::f16 ? -14 : -126;
  int exponent = lowest;
  if (x > 0) std::frexp(x, &exponent);
  return std::ldexp(1.0L, std::max(exponent, lowest + 1) - digits);
}

/// Largest and root-mean-square difference of two arrays.
struct ErrorNorms {
  long double max = 0;  ///< infinite if only one side is NaN or infinite somewhere
  long double rms = 0;  ///< likewise
};

/// |a − b|, where equal infinities and two NaN do not differ, and a NaN on only one side differs infinitely.
inline long double difference(long double a, long double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const long double d = std::abs(a - b);
  return std::isnan(d) ? std::numeric_limits<long double>::infinity() : d;
}

/// The norms of `a − b`, arrays of the same length.
template <class A, class B>
ErrorNorms error_norms(const A& a, const B& b) {
  ErrorNorms n;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double d = difference(a[i], b[i]);
    n.max = std::max(n.max, d);
    n.rms += d * d;
  }
  if (a.size() > 0) n.rms = std::sqrt(n.rms / static_cast<long double>(a.size()));
  return n;
}

/// The norms of the finite elements of `a`.
template <class A>
ErrorNorms magnitude(const A& a) {
  ErrorNorms n;
  std::size_t finite = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double v = a[i];
    if (!std::isfinite(v)) continue;
    ++finite;
    n.max = std::max(n.max, std::abs(v));
    n.rms += v * v;
  }
  if (finite > 0) n.rms = std::sqrt(n.rms / static_cast<long double>(finite));
  return n;
}

/// The largest error the rule allows, given the naive computation's error and the oracle's magnitude. Where the
/// naive computation itself breaks down it sets no limit.
inline ErrorNorms allowed_error(DType stored, const ErrorNorms& naive, const ErrorNorms& reference) {
  return {std::max(std::isfinite(naive.max) ? 2 * naive.max : 0, ulp(stored, reference.max)),
          std::max(std::isfinite(naive.rms) ? 2 * naive.rms : 0, ulp(stored, reference.rms) / 2)};
}

}  // namespace kformer
