// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

namespace kformer::Testing {

/// The largest difference of two arrays. It is infinite if a number of either is not finite: what nothing has written is NaN.
template <class A, class B>
double distance(const A& a, const B& b) {
  BOOST_REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto apart = static_cast<double>(std::abs(a[i] - b[i]));
    most = std::max(most, std::isfinite(apart) ? apart : std::numeric_limits<double>::infinity());
  }
  return most;
}

/// The largest magnitude.
template <class A>
double largest(const A& values) {
  double most = 0;
  for (const auto& value : values) most = std::max(most, static_cast<double>(std::abs(value)));
  return most;
}

/// Checks that all numbers are close, by the largest of those expected, which are not all 0.
template <class A, class B>
void check_near(const std::string& what, const A& found, const B& expected, double share) {
  const double error = distance(found, expected), size = largest(expected);
  BOOST_TEST(error <= share * size, what << ": " << error << " of " << size);
  BOOST_TEST(size > 0, what);
}

}  // namespace kformer::Testing
