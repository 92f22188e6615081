// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <type_traits>

#include "kformer/core/tolerance.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// Running error analysis: numbers that know how wrong arithmetic in float or double is expected to make them.

namespace kformer::Impl {

/// A number in wider arithmetic, with the variance of the error that arithmetic in C gives it. `Real` of a reference:
/// with `Store` = T the result says what errors the textbook algorithm with every array rounded to T has.
///
/// An operation adds a rounding error, uniform up to half an ulp and independent of all others, and passes on the errors
/// of its operands to first order. (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §2.8, §3.3.)
template <class C>
class Estimated {
 public:
  using Value = std::conditional_t<std::is_same_v<C, double>, long double, double>;

  constexpr Estimated() = default;
  /// An exact number.
  template <class A>
    requires std::is_arithmetic_v<A>
  constexpr Estimated(A value) : m_value(static_cast<Value>(value)) {}

  template <class A>
    requires std::is_arithmetic_v<A>
  constexpr explicit operator A() const {
    return static_cast<A>(m_value);
  }

  constexpr Value value() const { return m_value; }
  /// Of the whole error.
  constexpr Value variance() const { return m_variance; }
  /// The largest error of the last rounding.
  constexpr Value half_ulp() const { return m_half_ulp; }
  /// Of the error before the last rounding.
  Value variance_before() const { return std::max(Value(0), m_variance - uniform(m_half_ulp)); }

  /// The same number, rounded to storage type Store.
  template <class Store>
  Estimated rounded_to() const {
    if (m_variance == 0 && static_cast<Value>(stored<Store>(m_value)) == m_value) return *this;
    const Value half_ulp = static_cast<Value>(ulp(dtype_of<Store>, size() + std::sqrt(m_variance))) / 2;
    return {m_value, m_variance + uniform(half_ulp), half_ulp};
  }

  friend constexpr Estimated operator-(const Estimated& x) { return {-x.m_value, x.m_variance, x.m_half_ulp}; }
  [[gnu::always_inline]] friend Estimated operator+(const Estimated& x, const Estimated& y) {
    if (x.m_value == 0 || y.m_value == 0)
      return {x.m_value + y.m_value, x.m_variance + y.m_variance, x.m_half_ulp + y.m_half_ulp};
    // The operands represent partial sums in another order: kernels add in an order of their own.
    const Value size_x = x.size(), size_y = y.size();
    return rounded(x.m_value + y.m_value, x.m_variance + y.m_variance, size_x < size_y ? size_y : size_x);
  }
  friend Estimated operator-(const Estimated& x, const Estimated& y) { return x + -y; }
  [[gnu::always_inline]] friend Estimated operator*(const Estimated& x, const Estimated& y) {
    return rounded(x.m_value * y.m_value,
                   y.m_value * y.m_value * x.m_variance + x.m_value * x.m_value * y.m_variance, 0);
  }
  friend Estimated operator/(const Estimated& x, const Estimated& y) {
    const Value quotient = x.m_value / y.m_value;
    return rounded(quotient, (x.m_variance + quotient * quotient * y.m_variance) / (y.m_value * y.m_value), 0);
  }
  [[gnu::always_inline]] Estimated& operator+=(const Estimated& y) { return *this = *this + y; }
  Estimated& operator-=(const Estimated& y) { return *this = *this - y; }
  Estimated& operator*=(const Estimated& y) { return *this = *this * y; }
  Estimated& operator/=(const Estimated& y) { return *this = *this / y; }
  friend constexpr bool operator==(const Estimated& x, const Estimated& y) { return x.m_value == y.m_value; }
  friend constexpr auto operator<=>(const Estimated& x, const Estimated& y) { return x.m_value <=> y.m_value; }

  friend Estimated abs(const Estimated& x) { return x.m_value < 0 ? -x : x; }
  friend Estimated sqrt(const Estimated& x) {
    const Value root = std::sqrt(x.m_value);
    return x.of_function(root, root == 0 ? 0 : 1 / (2 * root));
  }
  friend Estimated exp(const Estimated& x) {
    const Value power = std::exp(x.m_value);
    return x.of_function(power, power);
  }
  friend Estimated log(const Estimated& x) { return x.of_function(std::log(x.m_value), 1 / x.size()); }
  friend Estimated tanh(const Estimated& x) {
    const Value t = std::tanh(x.m_value);
    return x.of_function(t, 1 - t * t);
  }
  friend Estimated sin(const Estimated& x) { return x.of_function(std::sin(x.m_value), std::cos(x.m_value)); }
  friend Estimated cos(const Estimated& x) { return x.of_function(std::cos(x.m_value), std::sin(x.m_value)); }
  friend Estimated atan(const Estimated& x) {
    return x.of_function(std::atan(x.m_value), 1 / (1 + x.m_value * x.m_value));
  }
  friend Estimated pow(const Estimated& x, const Estimated& y) {
    const Value power = std::pow(x.m_value, y.m_value);
    Estimated result = x.of_function(power, y.m_value * power / x.m_value);
    result.m_variance += std::pow(power * std::log(x.m_value), Value(2)) * y.m_variance;
    return result;
  }
  /// x · 2^exponent, exactly.
  friend Estimated ldexp(const Estimated& x, int exponent) {
    return {std::ldexp(x.m_value, exponent), std::ldexp(x.m_variance, 2 * exponent),
            std::ldexp(x.m_half_ulp, exponent)};
  }
  friend bool isnan(const Estimated& x) { return std::isnan(x.m_value); }
  friend bool isinf(const Estimated& x) { return std::isinf(x.m_value); }
  friend bool isfinite(const Estimated& x) { return std::isfinite(x.m_value); }

 private:
  constexpr Estimated(Value value, Value variance, Value half_ulp)
      : m_value(value), m_variance(variance), m_half_ulp(half_ulp) {}

  static constexpr Value unit = std::numeric_limits<C>::epsilon() / 2,
                         least = Value(std::numeric_limits<C>::denorm_min()) / 2;

  // The variance of an error that is uniform up to `half`.
  static constexpr Value uniform(Value half) { return half * half * (Value(1) / 3); }
  Value size() const { return m_value < 0 ? -m_value : m_value; }

  // The result of an operation in C; `size` is that of what was rounded, if it exceeds the result's.
  [[gnu::always_inline]] static Estimated rounded(Value value, Value variance, Value size) {
    const Value of_value = value < 0 ? -value : value, largest = size < of_value ? of_value : size;
    if (!(largest <= std::numeric_limits<Value>::max())) return {value, 0, 0};
    const Value half_ulp = largest == 0 ? 0 : unit * largest + least;
    return {value, variance + half_ulp * half_ulp * (Value(1) / 3), half_ulp};
  }
  // Functions are accurate to an ulp, and may return 0 where the result is subnormal.
  Estimated of_function(Value value, Value slope) const {
    if (!std::isfinite(value)) return value;
    const Value half_ulp = 2 * unit * std::abs(value) + static_cast<Value>(std::numeric_limits<C>::min());
    return {value, slope * slope * m_variance + uniform(half_ulp), half_ulp};
  }

  // The variance has the range of squares: a double for float, a long double for double.
  Value m_value = 0, m_variance = 0, m_half_ulp = 0;
};

template <class Store, class C>
Estimated<C> stored(const Estimated<C>& value) {
  if constexpr (std::is_same_v<Store, Estimated<C>>)
    return value;
  else
    return value.template rounded_to<Store>();
}

}  // namespace kformer::Impl

template <class C>
class std::numeric_limits<kformer::Impl::Estimated<C>>
    : public std::numeric_limits<typename kformer::Impl::Estimated<C>::Value> {};
