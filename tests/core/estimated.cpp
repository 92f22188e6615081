// SPDX-License-Identifier: MIT
#include "ops/common/estimated.hpp"

#include <boost/test/unit_test.hpp>

#include <random>
#include <vector>

#include "support/compare.hpp"

namespace kformer::Testing {
namespace {
using kformer::Impl::HostTensor;
using Float = kformer::Impl::Estimated<float>;
using Double = kformer::Impl::Estimated<double>;
constexpr double unit = 0x1p-24;

template <class Real>
HostTensor<Real> tensor(const std::vector<Real>& values) {
  HostTensor<Real> t({static_cast<std::int64_t>(values.size())});
  t.values() = values;
  return t;
}

/// Judges `out` where `expected`, rounded once to bf16, is the naive result.
Comparison rounded_once(const std::vector<double>& out, const std::vector<double>& expected) {
  std::vector<Float> naive;
  for (const double x : expected) naive.push_back(kformer::Impl::stored<bf16>(Float(x)));
  return compare<bf16>(tensor(out), tensor(expected), tensor(naive));
}
}  // namespace

BOOST_AUTO_TEST_SUITE(estimated)

BOOST_AUTO_TEST_CASE(numbers_are_exact_until_they_are_rounded) {
  const Float x = 3, zero = 0;
  BOOST_TEST((x.variance() == 0 && (-x).variance() == 0 && (x + zero).variance() == 0));
  BOOST_TEST((x * x).value() == 9);
  BOOST_TEST((x * x).half_ulp() == 9 * unit + 0x1p-150);
  BOOST_TEST((x * x).variance_before() == 0);
  BOOST_TEST((x - x).half_ulp() == 3 * unit + 0x1p-150);
  BOOST_TEST(kformer::Impl::stored<bf16>(x).half_ulp() == 0);
  BOOST_TEST(kformer::Impl::stored<bf16>(Float(1 + 0x1p-10)).half_ulp() == 0x1p-8);
  BOOST_TEST((kformer::Impl::stored<Float>(x * x) == x * x));
}

BOOST_AUTO_TEST_CASE(errors_are_passed_on_by_the_derivative) {
  const Float x = kformer::Impl::stored<bf16>(Float(1.501));
  const double deviation = std::sqrt(x.variance());
  BOOST_TEST(deviation == 0x1p-8 / std::sqrt(3.0), boost::test_tools::tolerance(1e-12));
  const auto ratio = [&](const Float& y) { return std::sqrt(y.variance_before()) / deviation; };
  const auto near = boost::test_tools::tolerance(1e-6);
  BOOST_TEST(ratio(x * 4) == 4.0, near);
  BOOST_TEST(ratio(6 / x) == 6 / (1.501 * 1.501), near);
  BOOST_TEST(ratio(exp(x)) == std::exp(1.501), near);
  BOOST_TEST(ratio(log(x)) == 1 / 1.501, near);
  BOOST_TEST(ratio(sqrt(x)) == 0.5 / std::sqrt(1.501), near);
  BOOST_TEST(ratio(tanh(x)) == 1 / std::pow(std::cosh(1.501), 2), near);
  BOOST_TEST(ratio(sin(x)) == std::abs(std::cos(1.501)), near);
  BOOST_TEST(ratio(cos(x)) == std::abs(std::sin(1.501)), near);
  BOOST_TEST(ratio(atan(x)) == 1 / (1 + 1.501 * 1.501), near);
  BOOST_TEST(ratio(pow(x, Float(3))) == 3 * 1.501 * 1.501, near);
  BOOST_TEST(ratio(pow(Float(2), x)) == std::log(2.0) * std::pow(2.0, 1.501), near);
  BOOST_TEST(ldexp(x, 3).variance() == 64 * x.variance(), near);
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_has_no_error) {
  const Float infinity = std::numeric_limits<Float>::infinity();
  BOOST_TEST((exp(-infinity).value() == 0 && isinf(infinity * 2) && isnan(infinity - infinity)));
  for (const Float& x : {infinity * 2, infinity - infinity, Float(1) / Float(0), log(Float(0))})
    BOOST_TEST(x.variance() == 0);
}

// Squares of 1e−200 underflow in double, those of their errors in a long double do not.
BOOST_AUTO_TEST_CASE(small_numbers_keep_their_errors) {
  const Double x = Double(1e-200) * Double(1.5);
  BOOST_TEST(x.variance() > 0);
  BOOST_TEST(std::sqrt(x.variance()) < 1e-215L);
}

// The errors of float, measured over many sums, have the size that is expected of them.
BOOST_AUTO_TEST_CASE(expected_errors_are_those_of_float) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (const int terms : {1, 10, 300})
    for (const double shift : {0.0, 1.0}) {
      double measured = 0, expected = 0;
      for (int draw = 0; draw < 2000; ++draw) {
        float sum = 0;
        double exact = 0;
        Float estimate = 0;
        for (int i = 0; i < terms; ++i) {
          const float a = normal(generator), b = static_cast<float>(shift) + normal(generator);
          const float product = a * a * b;
          sum += product;
          exact += double(a) * double(a) * double(b);
          estimate += Float(a) * Float(a) * Float(b);
        }
        measured += (sum - exact) * (sum - exact);
        expected += estimate.variance();
      }
      const double ratio = std::sqrt(measured / expected);
      BOOST_TEST((ratio < 1 && ratio > 0.3), terms << " terms, shift " << shift << ": " << ratio);
    }
}

BOOST_AUTO_TEST_CASE(what_is_merely_rounded_passes) {
  std::vector<double> expected, out;
  for (int i = 0; i < 1000; ++i) {
    expected.push_back(0.7 + 0.001 * i);
    out.push_back(kformer::Impl::stored<bf16>(expected.back()));
  }
  BOOST_TEST(rounded_once(out, expected).ok);
  // One ulp off in one place, and rounding towards zero everywhere.
  std::vector<double> off = out, truncated = expected;
  off[500] = out[500] + 0x1p-7;
  BOOST_TEST(!rounded_once(off, expected).ok);
  for (double& x : truncated) x = std::floor(x * 0x1p8) / 0x1p8;
  BOOST_TEST(!rounded_once(truncated, expected).ok);
}

BOOST_AUTO_TEST_CASE(nan_and_infinity_must_be_in_their_places) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::vector<double> expected{1, infinity, nan, 2};
  BOOST_TEST(rounded_once(expected, expected).ok);
  BOOST_TEST(!rounded_once({1, infinity, nan, nan}, expected).ok);
  BOOST_TEST(!rounded_once({1, 3, nan, 2}, expected).ok);
  BOOST_TEST(!rounded_once({1, infinity, 3, 2}, expected).ok);
}

BOOST_AUTO_TEST_CASE(elements_far_smaller_than_their_neighbours_share_their_errors) {
  std::vector<double> expected(100, 1.0), out = expected;
  std::vector<Float> naive(100, Float(0.1f) * Float(9.5f) + Float(0.05f));
  expected[7] = out[7] = 1e-9;
  naive[7] = 1e-9;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (i != 7) expected[i] = out[i] = static_cast<double>(naive[i]);
  out[7] += 0.5 * unit;
  BOOST_TEST(compare<float>(tensor(out), tensor(expected), tensor(naive)).ok);
  out[7] += 5 * unit;
  const Comparison c = compare<float>(tensor(out), tensor(expected), tensor(naive));
  BOOST_TEST(!c.ok);
  BOOST_TEST(c.report.starts_with("1 of 100 elements out of tolerance, rms error "), c.report);
  BOOST_TEST(c.share > 1.0L);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
