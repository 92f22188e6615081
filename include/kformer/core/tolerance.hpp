// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "kformer/core/scalar.hpp"

/// \file
/// The tolerance rule of tests and drivers (docs/tolerance.md). With \f$\sigma_i\f$ the error that the textbook algorithm, every
/// array rounded to T, is expected to have in element i before its last rounding, and h_i half an ulp of the element as stored,
///
///     |out_i − ref_i| ≤ h_i + 10·max(σ_i, σ/8)   and   rms(out − ref) ≤ (2 + 8/√n)·rms(σ, h/√3),
///
/// where σ is the rms of the σ_i, and n the number of rows that have errors of their own.

namespace kformer {

namespace Impl {
/// Binary digits of a storage type, hidden one included.
inline int digits_of(DType dtype) {
  return dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
}
/// The exponent of its smallest normal number.
inline int lowest_exponent(DType dtype) {
  return dtype == DType::f64 ? -1022 : dtype == DType::f16 ? -14 : -126;
}
}  // namespace Impl

/// The spacing of numbers of storage type `dtype` at magnitude `x`.
inline long double ulp(DType dtype, long double x) {
  const int lowest = Impl::lowest_exponent(dtype);
  int exponent = lowest;
  if (x > 0) std::frexp(x, &exponent);
  return std::ldexp(1.0L, std::max(exponent, lowest + 1) - Impl::digits_of(dtype));
}

/// The least magnitude that rounds to infinity when it is stored: half an ulp above the largest number.
inline long double overflow_threshold(DType dtype) {
  return std::ldexp(2 - std::ldexp(1.0L, -Impl::digits_of(dtype)), 1 - Impl::lowest_exponent(dtype));
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

/// The same for a result that is stored: none if it is infinite because the exact number exceeds the type's range. That
/// number is `exact`, or up to `margin` larger.
inline long double stored_difference(DType stored, long double result, long double exact,
                                     long double margin = 0) {
  const bool overflowed = std::isinf(result) && std::signbit(result) == std::signbit(exact) &&
                          std::abs(exact) + margin >= overflow_threshold(stored);
  return overflowed ? 0 : difference(result, exact);
}

/// The norms of `count` errors, `error(i)` each.
template <class Error>
ErrorNorms norms_of(std::size_t count, const Error& error) {
  ErrorNorms n;
  for (std::size_t i = 0; i < count; ++i) {
    const long double d = error(i);
    n.max = std::max(n.max, d);
    n.rms += d * d;
  }
  if (count > 0) n.rms = std::sqrt(n.rms / static_cast<long double>(count));
  return n;
}

/// The norms of `a − b`, arrays of the same length.
template <class A, class B>
ErrorNorms error_norms(const A& a, const B& b) {
  return norms_of(a.size(), [&](std::size_t i) { return difference(a[i], b[i]); });
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

/// What the rule says of a tensor.
struct Verdict {
  std::size_t wrong = 0;        ///< elements out of tolerance
  std::size_t first_wrong = 0;  ///< the first of them
  long double rms = 0;          ///< of the errors
  long double rms_limit = 0;    ///< its limit
  long double share = 0;        ///< the largest share of a limit that was used

  /// Whether both limits hold.
  bool ok() const { return wrong == 0 && rms <= rms_limit; }
};

/// How far the elements of a tensor may be from the oracle, and all of them together.
class ErrorLimits {
 public:
  /// \param stored the storage type of the tensor
  /// \param row    neighbours that may share errors: the last extent
  ErrorLimits(DType stored, std::size_t row) : m_stored(stored), m_row(row) {}

  /// Adds the next element.
  /// \param reference the oracle's
  /// \param variance  expected of its error before the last rounding; infinite or NaN if it is not known
  /// \param half_ulp  the largest error of the last rounding, if it exceeds that of the storage type
  void add(long double reference, long double variance, long double half_ulp = 0);
  /// Every element is expected to have at least this error.
  void expect_at_least(long double deviation) { m_least = std::max(m_least, deviation); }
  /// The expected errors are the rms of so many samples of errors, N: those of few rows say less, so elements get
  /// 1 + 4/√(n·N) times the margin.
  void are_from_samples(std::size_t samples) { m_samples = samples; }

  /// The limit of element `i`.
  long double of(std::size_t i) const;
  /// The error of element `i`, stored as `result`.
  long double error(std::size_t i, long double result, long double reference) const {
    return stored_difference(m_stored, result, reference, of(i));
  }
  /// The limit of the rms.
  long double rms() const;

  /// The number of rows that have errors of their own, n: less than all if few of them have the largest errors.
  long double independent_rows() const;

  /// Judges as many elements as were added.
  Verdict judge(std::span<const double> out, std::span<const double> reference) const;
  /// The same in wider numbers, for kernels in double.
  Verdict judge(std::span<const long double> out, std::span<const long double> reference) const;

 private:
  /// What the limits of all elements have in common.
  struct Margin {
    long double width;  ///< in standard deviations
    long double least;  ///< standard deviation
  };

  long double mean(long double sum) const;
  /// 1/√n.
  long double uncertainty() const;
  Margin margin() const;
  long double of(std::size_t i, const Margin& margin) const;
  template <class Real>
  Verdict judge_all(std::span<const Real> out, std::span<const Real> reference) const;

  DType m_stored;
  std::size_t m_row;
  std::vector<long double> m_half_ulp, m_deviation;
  std::size_t m_samples = 0;  // 0: the expected errors are no sample
  long double m_least = 0, m_before = 0, m_of_row = 0, m_total = 0, m_squares = 0;
};

/// What is known of the errors that stand for the expected ones.
struct SampledErrors {
  long double scale = 1;    ///< factor on them
  long double usual = 0;    ///< ē, the error of other tensors relative to their rms; 0 if it is not known
  std::size_t samples = 1;  ///< N; they are the rms of those of so many computations
};

/// The limits where the errors of a naive computation replace the expected ones. Each element has at least an
/// ulp of the arithmetic, the rms of the naive errors, and a fifth of the largest. An element that the naive
/// computation makes infinite or NaN gets no margin, unless its exact value exceeds the range of the type.
///
/// The errors of few rows say little of those that another run would have. If the tensor's error e, its rms over
/// the rms of the reference, is less than the usual one ē, it counts as if four rows with errors of ē were added,
/// on a logarithmic scale: all errors are multiplied by (ē/e)^(4/(n+4)) for n rows, those of all samples together.
/// \param stored     the storage type of the tensor
/// \param arithmetic the type of the naive computation's arithmetic
/// \param row        neighbours that may share errors: the last extent
/// \param naive      its results
/// \param reference  the oracle's
/// \param sampled    what is known of the naive errors
template <class A, class B>
ErrorLimits sampled_limits(DType stored, DType arithmetic, std::size_t row, const A& naive, const B& reference,
                           SampledErrors sampled = {}) {
  const auto error = [&](std::size_t i) { return stored_difference(stored, naive[i], reference[i]); };
  const ErrorNorms errors = norms_of(reference.size(), error);
  const long double size = magnitude(reference).rms;
  long double scale = sampled.scale;
  long double least = ulp(arithmetic, size);
  if (const long double own = std::max(scale * errors.rms, least);
      std::isfinite(own) && scale * sampled.usual * size > own) {
    const std::size_t rows = reference.size() / row * sampled.samples;
    const long double factor =
        std::pow(scale * sampled.usual * size / own, 4 / static_cast<long double>(rows + 4));
    scale *= factor;
    least *= factor;
  }
  ErrorLimits limits(stored, row);
  limits.are_from_samples(sampled.samples);
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const long double own = scale * error(i);
    limits.add(reference[i], own * own + least * least);
  }
  if (std::isfinite(errors.rms)) limits.expect_at_least(scale * std::max(errors.rms, errors.max / 5));
  return limits;
}

}  // namespace kformer
