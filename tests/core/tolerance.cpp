// SPDX-License-Identifier: MIT
#include "kformer/core/tolerance.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "support/compare.hpp"
#include "support/distance.hpp"

namespace kformer::Testing {
namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");
using Values = std::vector<double>;

kformer::Impl::HostTensor<double> tensor(const Values& values) {
  kformer::Impl::HostTensor<double> t({static_cast<std::int64_t>(values.size())});
  t.values() = values;
  return t;
}
}  // namespace

BOOST_AUTO_TEST_SUITE(tolerance)

BOOST_AUTO_TEST_CASE(ulp_is_the_spacing_of_the_type) {
  BOOST_TEST(ulp(DType::f32, 1.0L) == std::numeric_limits<float>::epsilon());
  BOOST_TEST(ulp(DType::f64, 1.0L) == std::numeric_limits<double>::epsilon());
  BOOST_TEST(ulp(DType::f16, 1.0L) == 0x1p-10L);
  BOOST_TEST(ulp(DType::bf16, 1.0L) == 0x1p-7L);
  // Constant between powers of two, doubled at each.
  BOOST_TEST(ulp(DType::f32, 1.99L) == 0x1p-23L);
  BOOST_TEST(ulp(DType::f32, 2.0L) == 0x1p-22L);
  BOOST_TEST(ulp(DType::f32, 0.99L) == 0x1p-24L);
}

BOOST_AUTO_TEST_CASE(ulp_stops_at_the_subnormals) {
  for (const long double x : {0.0L, 0x1p-30L, 0x1p-14L}) BOOST_TEST(ulp(DType::f16, x) == 0x1p-24L);
  BOOST_TEST(ulp(DType::f16, 0x1p-13L) == 0x1p-23L);
  BOOST_TEST(ulp(DType::bf16, 0.0L) == 0x1p-133L);
  BOOST_TEST(ulp(DType::f32, 0.0L) == static_cast<long double>(std::numeric_limits<float>::denorm_min()));
  BOOST_TEST(ulp(DType::f64, 0.0L) == static_cast<long double>(std::numeric_limits<double>::denorm_min()));
}

BOOST_AUTO_TEST_CASE(differences_of_what_is_not_finite) {
  BOOST_TEST(difference(3.0L, 5.0L) == 2.0L);
  BOOST_TEST(difference(infinity, infinity) == 0.0L);
  BOOST_TEST(difference(-infinity, -infinity) == 0.0L);
  BOOST_TEST(difference(infinity, -infinity) == infinity);
  BOOST_TEST(difference(infinity, 1.0L) == infinity);
  BOOST_TEST(difference(nan, nan) == 0.0L);
  BOOST_TEST(difference(nan, 1.0L) == infinity);
  BOOST_TEST(difference(1.0L, nan) == infinity);
  BOOST_TEST(difference(nan, infinity) == infinity);
}

// What nothing has written must not pass for a result.
BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_are_at_no_distance) {
  BOOST_TEST(distance(Values{1, 2, 4}, Values{1, 2.5, 4.25}) == 0.5);
  BOOST_TEST(largest(Values{1, -3, 2}) == 3);
  for (const double bad : {nan, infinity}) {
    BOOST_TEST(distance(Values{1, bad, 2}, Values{1, 2, 3}) == infinity);
    BOOST_TEST(distance(Values{1, 2, 3}, Values{bad, 2, 4}) == infinity);
    BOOST_TEST(distance(Values{bad}, Values{bad}) == infinity);
  }
}

BOOST_AUTO_TEST_CASE(norms_of_a_difference) {
  const ErrorNorms n = error_norms(Values{1, 2, -3, 4}, Values{1, 5, 1, 4});
  BOOST_TEST(n.max == 4.0L);
  BOOST_TEST(n.rms == 2.5L);
  const ErrorNorms none = error_norms(Values{}, Values{});
  BOOST_TEST(none.max == 0.0L);
  BOOST_TEST(none.rms == 0.0L);
  const ErrorNorms broken = error_norms(Values{1, nan}, Values{1, 2});
  BOOST_TEST(broken.max == infinity);
  BOOST_TEST(broken.rms == infinity);
  const ErrorNorms equal = error_norms(Values{infinity, nan, 1}, Values{infinity, nan, 1});
  BOOST_TEST(equal.max == 0.0L);
}

BOOST_AUTO_TEST_CASE(magnitude_leaves_out_what_is_not_finite) {
  const ErrorNorms m = magnitude(Values{-4, infinity, nan, 3, -infinity});
  BOOST_TEST(m.max == 4.0L);
  BOOST_TEST(m.rms == std::sqrt(12.5L));
  const ErrorNorms none = magnitude(Values{nan, infinity});
  BOOST_TEST(none.max == 0.0L);
  BOOST_TEST(none.rms == 0.0L);
}

BOOST_AUTO_TEST_CASE(an_element_may_have_ten_times_its_expected_error_beside_its_rounding) {
  ErrorLimits limits(DType::f32, 1);
  for (const long double variance : {0.0L, 0.01L, 0.01L, 0.0L}) limits.add(1, variance);
  const long double half_ulp = 0x1p-24L;
  BOOST_TEST(static_cast<double>(limits.of(1)) == static_cast<double>(half_ulp + 1));
  // Of the others at least an eighth of the rms is expected.
  BOOST_TEST(static_cast<double>(limits.of(0)) == static_cast<double>(half_ulp + 10 * std::sqrt(0.005L) / 8));
  limits.expect_at_least(0.2L);
  BOOST_TEST(static_cast<double>(limits.of(1)) == static_cast<double>(half_ulp + 2));
}

BOOST_AUTO_TEST_CASE(the_rms_limit_allows_for_chance_by_the_number_of_rows) {
  const auto limit = [](std::size_t row) {
    ErrorLimits limits(DType::f64, row);
    for (int i = 0; i < 64; ++i) limits.add(0, 1);
    return static_cast<double>(limits.rms());
  };
  const auto near = boost::test_tools::tolerance(1e-12);
  BOOST_TEST(limit(64) == 10.0, near);
  BOOST_TEST(limit(16) == 6.0, near);
  BOOST_TEST(limit(1) == 3.0, near);
}

BOOST_AUTO_TEST_CASE(a_naive_computation_that_breaks_down_allows_nothing) {
  ErrorLimits limits(DType::f16, 1);
  limits.add(1, std::numeric_limits<long double>::infinity());
  limits.add(1, 0, std::numeric_limits<long double>::quiet_NaN());
  BOOST_TEST(limits.of(0) == 0x1p-11L);
  BOOST_TEST(limits.of(1) == 0x1p-11L);
  const ErrorLimits sampled = sampled_limits(DType::f16, DType::f32, 1, Values{infinity, 1}, Values{1, 1});
  BOOST_TEST(sampled.of(0) < 1.001L * 0x1p-11L);
}

BOOST_AUTO_TEST_CASE(what_rounds_to_infinity) {
  BOOST_TEST(overflow_threshold(DType::f16) == 65520.0L);
  BOOST_TEST(overflow_threshold(DType::f32) == 0x1.ffffffp127L);
  BOOST_TEST(overflow_threshold(DType::bf16) == 0x1.ffp127L);
  BOOST_TEST(overflow_threshold(DType::f64) == 0x1.fffffffffffff8p1023L);
}

BOOST_AUTO_TEST_CASE(a_result_beyond_the_range_of_its_type_is_infinite) {
  const auto accepts = [](long double exact, double out, double other_naive = 0) {
    ErrorLimits expected(DType::f16, 1);
    expected.add(exact, 1);
    expected.add(0, 0);
    const Values reference{static_cast<double>(exact), 0};
    const double naive = other_naive != 0 ? other_naive : static_cast<double>(exact) + 1;
    const ErrorLimits sampled = sampled_limits(DType::f16, DType::f32, 1, Values{naive, 0}, reference);
    BOOST_TEST(expected.judge(Values{out, 0}, reference).ok() == sampled.judge(Values{out, 0}, reference).ok());
    return expected.judge(Values{out, 0}, reference).ok();
  };
  BOOST_TEST(accepts(121963, infinity));
  BOOST_TEST(accepts(-121963, -infinity));
  BOOST_TEST(accepts(121963, infinity, infinity));
  BOOST_TEST(!accepts(121963, -infinity));
  BOOST_TEST(!accepts(121963, 65504));
  BOOST_TEST(!accepts(121963, nan));
  // Errors decide between the two.
  BOOST_TEST(accepts(65510, infinity));
  BOOST_TEST(accepts(65510, 65504));
  BOOST_TEST(!accepts(65000, infinity));
}

BOOST_AUTO_TEST_CASE(an_overflow_of_the_sample_says_nothing_of_the_others) {
  const Values reference{100000, 1}, naive{infinity, 1.01};
  const ErrorLimits limits = sampled_limits(DType::f16, DType::f32, 1, naive, reference);
  BOOST_TEST(limits.judge(Values{infinity, 0.99}, reference).ok());
}

BOOST_AUTO_TEST_CASE(a_sample_stands_for_the_expected_errors) {
  const Values reference(100, 1.0);
  Values naive = reference;
  naive[7] += 0.01;  // the only error: n = 1
  const ErrorLimits limits = sampled_limits(DType::f32, DType::f32, 1, naive, reference);
  const auto near = boost::test_tools::tolerance(1e-4);
  BOOST_TEST(static_cast<double>(limits.of(7)) == 5 * 0.1, near);
  BOOST_TEST(static_cast<double>(limits.of(8)) == 5 * 0.02, near);  // a fifth of the largest
  const ErrorLimits half = sampled_limits(DType::f32, DType::f32, 1, naive, reference, {.scale = 0.5L});
  BOOST_TEST(static_cast<double>(half.of(8)) == 5 * 0.01, near);
  // The naive computation may be exact by chance.
  const ErrorLimits lucky = sampled_limits(DType::f32, DType::f32, 1, reference, reference);
  BOOST_TEST(static_cast<double>(lucky.of(0)) == 0x1p-24 + 14 * 0x1p-23, near);
  BOOST_TEST(lucky.rms() > 2 * 0x1p-23L);
}

BOOST_AUTO_TEST_CASE(a_small_sample_is_widened_by_the_usual_error) {
  const auto limit = [](std::size_t rows, long double usual) {
    const Values reference(rows, 1.0);
    const Values naive(rows, 1.0 + 0x1p-10);
    return static_cast<double>(
        sampled_limits(DType::f32, DType::f32, 1, naive, reference, {.usual = usual}).of(0));
  };
  const auto near = boost::test_tools::tolerance(1e-5);    // the last rounding is not widened
  BOOST_TEST(limit(4, 0x1p-6L) == 4 * limit(4, 0), near);  // 4 rows of its own, 4 of 16 times the error
  BOOST_TEST(limit(12, 0x1p-6L) == 2 * limit(12, 0), near);
  BOOST_TEST(limit(4, 0x1p-12L) == limit(4, 0));
}

// One row has 50 times its expected error for a limit, and 30 times if it was measured four times.
BOOST_AUTO_TEST_CASE(more_samples_narrow_the_limits_of_few_rows) {
  const Values reference{1.0}, naive{1.0 + 0x1p-10};
  const auto limit = [&](std::size_t samples, long double usual) {
    return static_cast<double>(
        sampled_limits(DType::f32, DType::f32, 1, naive, reference, {.usual = usual, .samples = samples})
            .of(0));
  };
  const auto near = boost::test_tools::tolerance(1e-5);
  BOOST_TEST(limit(1, 0) == 50 * 0x1p-10, near);
  BOOST_TEST(limit(4, 0) == 30 * 0x1p-10, near);
  BOOST_TEST(limit(4, 0x1p-6L) == 4 * limit(4, 0), near);  // 4 of 8 rows have 16 times the error
}

BOOST_AUTO_TEST_CASE(rows_with_the_largest_errors_count) {
  const auto rows = [](std::vector<long double> deviations) {
    ErrorLimits limits(DType::f64, 1);
    for (const long double d : deviations) limits.add(0, d * d);
    return static_cast<double>(limits.independent_rows());
  };
  const auto near = boost::test_tools::tolerance(1e-5);
  BOOST_TEST(rows({1, 1, 1, 1}) == 4, near);
  BOOST_TEST(rows({1000, 1, 1, 1}) == 1, near);
  BOOST_TEST(rows({}) == 1);
}

BOOST_AUTO_TEST_CASE(both_limits_must_hold) {
  const Values reference(100, 1.0);
  ErrorLimits limits(DType::f64, 1);
  for (int i = 0; i < 100; ++i) limits.add(1, 1e-4);
  const auto verdict = [&](Values out) { return limits.judge(out, reference); };
  BOOST_TEST(verdict(reference).ok());
  BOOST_TEST(verdict(reference).share == 0.0L);
  Values spike = reference, everywhere = reference, lost = reference;
  spike[3] += 0.11;
  for (double& v : everywhere) v += 0.03;
  lost[9] = nan;
  BOOST_TEST((!verdict(spike).ok() && verdict(spike).wrong == 1 && verdict(spike).first_wrong == 3));
  BOOST_TEST((!verdict(everywhere).ok() && verdict(everywhere).wrong == 0));
  BOOST_TEST((!verdict(lost).ok() && verdict(lost).wrong == 1));
  BOOST_TEST(verdict(everywhere).share > 1.0L);
}

BOOST_AUTO_TEST_CASE(the_report_names_limits_and_the_first_mismatches) {
  Values out(10, 1.0);
  out[4] = 1.5;
  const Comparison c = compare<float>(tensor(out), tensor(Values(10, 1.0)), tensor(Values(10, 1.0)));
  BOOST_TEST(c.report.starts_with("1 of 10 elements out of tolerance, rms error 0.158114 (limit "), c.report);
  BOOST_TEST(c.report.find("\n  [4] got 1.5, expected 1 ± ") != c.report.npos, c.report);
  BOOST_TEST(!compare<float>(tensor(out), tensor({1}), tensor({1})).ok);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
