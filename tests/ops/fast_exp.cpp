// SPDX-License-Identifier: MIT
#include "kformer/ops/impl/fast_exp.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "kformer/core/tolerance.hpp"

namespace kformer::Testing {
using kformer::Impl::polynomial_exp;

BOOST_AUTO_TEST_SUITE(fast_exp)

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float lowest = -0x1.5d589ep+6f;  // ln 2⁻¹²⁶, rounded up

BOOST_AUTO_TEST_CASE(polynomial_is_within_one_ulp) {
  long double worst = 0;
  float worst_at = 0;
  auto judge = [&](float x) {
    const long double exact = std::exp(static_cast<long double>(x));
    const long double error = std::abs(polynomial_exp(x) - exact) / ulp(DType::f32, exact);
    if (error > worst) {
      worst = error;
      worst_at = x;
    }
  };
  // Every 257th float of each sign, from zero to the ends of the range.
  for (std::uint32_t bits = 0; Kokkos::bit_cast<float>(bits) <= 88.0f; bits += 257)
    judge(Kokkos::bit_cast<float>(bits));
  for (std::uint32_t bits = 0x80000000u; Kokkos::bit_cast<float>(bits) >= lowest; bits += 257)
    judge(Kokkos::bit_cast<float>(bits));
  BOOST_TEST(worst <= 1.0L, "error of " << worst << " ulp at " << worst_at);
  BOOST_TEST(worst >= 0.5L, "no rounded function is that good: nothing was measured");
}

BOOST_AUTO_TEST_CASE(special_values) {
  BOOST_TEST(polynomial_exp(0.0f) == 1.0f);
  BOOST_TEST(polynomial_exp(-0.0f) == 1.0f);
  BOOST_TEST(polynomial_exp(-infinity) == 0.0f);
  BOOST_TEST(polynomial_exp(std::nextafter(lowest, -infinity)) == 0.0f);
  BOOST_TEST(polynomial_exp(lowest) >= std::numeric_limits<float>::min());
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()})
    BOOST_TEST(std::isnan(polynomial_exp(nan)));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
