// SPDX-License-Identifier: MIT
#include "kformer/core/tolerance.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "support/compare.hpp"

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

BOOST_AUTO_TEST_CASE(twice_the_naive_error_is_allowed_but_never_less_than_rounding) {
  const ErrorNorms reference{1, 0.5};
  const ErrorNorms wide = allowed_error(DType::f32, {0.25, 0.125}, reference);
  BOOST_TEST(wide.max == 0.5L);
  BOOST_TEST(wide.rms == 0.25L);
  const ErrorNorms floor = allowed_error(DType::f32, {0, 0}, reference);
  BOOST_TEST(floor.max == 0x1p-23L);
  BOOST_TEST(floor.rms == 0x1p-25L);
  BOOST_TEST(allowed_error(DType::bf16, {0, 0}, reference).max == 0x1p-7L);
}

BOOST_AUTO_TEST_CASE(a_naive_computation_that_breaks_down_allows_nothing) {
  const ErrorNorms limit = allowed_error(DType::f16, {infinity, infinity}, {1, 1});
  BOOST_TEST(limit.max == 0x1p-10L);
  BOOST_TEST(limit.rms == 0x1p-11L);
}

BOOST_AUTO_TEST_CASE(both_norms_must_hold) {
  const Values reference(100, 1.0);
  Values naive = reference;
  naive[7] += 0.01;  // one large error: large max, small rms
  BOOST_TEST(compare<float>(tensor(naive), tensor(reference), tensor(naive)).ok);
  Values everywhere = reference;
  for (double& v : everywhere) v += 0.01;
  BOOST_TEST(!compare<float>(tensor(everywhere), tensor(reference), tensor(naive)).ok);
  Values spike = reference;
  spike[3] += 0.021;
  BOOST_TEST(!compare<float>(tensor(spike), tensor(reference), tensor(naive)).ok);
  Values lost = naive;
  lost[0] = nan;
  BOOST_TEST(!compare<float>(tensor(lost), tensor(reference), tensor(naive)).ok);
}

BOOST_AUTO_TEST_CASE(the_report_names_limits_and_the_first_mismatches) {
  Values out(10, 1.0);
  out[4] = 1.5;
  const Comparison c = compare<float>(tensor(out), tensor(Values(10, 1.0)), tensor(Values(10, 1.0)));
  BOOST_TEST(
      c.report ==
      "max error 0.5 (limit 1.19209e-07), rms error 0.158114 (limit 5.96046e-08)\n  [4] got 1.5, expected 1");
  BOOST_TEST(!compare<float>(tensor(out), tensor({1}), tensor({1})).ok);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
