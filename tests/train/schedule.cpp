// SPDX-License-Identifier: MIT
#include "kformer/train/schedule.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

std::vector<double> rates(const LearningRateSchedule& schedule, std::int64_t count) {
  std::vector<double> all;
  for (std::int64_t step = 0; step < count; ++step) all.push_back(schedule.at(step));
  return all;
}

// The values are worked out by hand; each takes a few roundings.
void check_rates(const LearningRateSchedule& schedule, const std::vector<double>& expected) {
  const std::vector<double> got = rates(schedule, std::ssize(expected));
  for (std::size_t step = 0; step < expected.size(); ++step)
    BOOST_TEST(std::abs(got[step] - expected[step]) <= 8 * std::numeric_limits<double>::epsilon(),
               "step " << step << ": " << got[step] << ", expected " << expected[step]);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(schedule)

BOOST_AUTO_TEST_CASE(the_warm_up_is_a_line_that_ends_at_the_rate) {
  check_rates({.kind = ScheduleKind::constant, .learning_rate = 0.8, .warmup_steps = 4},
              {0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8});
  check_rates({.kind = ScheduleKind::constant, .learning_rate = 0.5}, {0.5, 0.5});
}

BOOST_AUTO_TEST_CASE(linear_falls_by_equal_parts) {
  check_rates({.kind = ScheduleKind::linear,
               .learning_rate = 1,
               .min_learning_rate = 0.2,
               .steps = 6,
               .warmup_steps = 2},
              {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
}

BOOST_AUTO_TEST_CASE(cosine_is_half_a_wave) {
  const double third = std::sqrt(3.0) / 4;  // ½ cos(π/6)
  check_rates({.kind = ScheduleKind::cosine, .learning_rate = 1, .steps = 6},
              {1, 0.5 + third, 0.75, 0.5, 0.25, 0.5 - third, 0, 0});
  check_rates({.kind = ScheduleKind::cosine,
               .learning_rate = 1,
               .min_learning_rate = 0.5,
               .steps = 5,
               .warmup_steps = 1},
              {1, 1, 0.75 + std::sqrt(2.0) / 8, 0.75, 0.75 - std::sqrt(2.0) / 8, 0.5});
}

BOOST_AUTO_TEST_CASE(wsd_stays_and_then_falls) {
  check_rates({.kind = ScheduleKind::wsd,
               .learning_rate = 1,
               .min_learning_rate = 0.2,
               .steps = 8,
               .warmup_steps = 2,
               .decay_steps = 4},
              {0.5, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  // Two of ten steps, if none are given.
  check_rates({.kind = ScheduleKind::wsd, .learning_rate = 1, .steps = 10},
              {1, 1, 1, 1, 1, 1, 1, 1, 1, 0.5, 0});
  // At least one.
  check_rates({.kind = ScheduleKind::wsd, .learning_rate = 1, .min_learning_rate = 0.2, .steps = 4},
              {1, 1, 1, 1, 0.2});
  check_rates({.kind = ScheduleKind::wsd, .learning_rate = 1, .steps = 1}, {1, 0});
  // The warm-up is not cut short.
  check_rates(
      {.kind = ScheduleKind::wsd, .learning_rate = 1, .steps = 4, .warmup_steps = 2, .decay_steps = 100},
      {0.5, 1, 1, 0.5, 0});
}

BOOST_AUTO_TEST_CASE(every_kind_begins_at_the_rate_and_never_rises) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd})
    for (const std::int64_t warmup : {0, 1, 7, 100}) {
      const LearningRateSchedule schedule{
          .kind = kind, .learning_rate = 3e-4, .min_learning_rate = 1e-5, .steps = 100, .warmup_steps = warmup};
      for (std::int64_t t = 0; t < warmup; ++t)
        BOOST_TEST(schedule.at(t) == 3e-4 * static_cast<double>(t + 1) / static_cast<double>(warmup));
      if (warmup < 100) BOOST_TEST(std::abs(schedule.at(warmup) - 3e-4) < 1e-19);
      for (std::int64_t t = warmup; t < 120; ++t) BOOST_TEST(schedule.at(t + 1) <= schedule.at(t));
      if (kind != ScheduleKind::constant) {
        BOOST_TEST(std::abs(schedule.at(100) - 1e-5) < 1e-19);
        BOOST_TEST(schedule.at(1000) == schedule.at(100));
      }
    }
}

BOOST_AUTO_TEST_CASE(members_out_of_range_are_refused) {
  const auto check = [](const LearningRateSchedule& schedule) { return [=] { schedule.check(); }; };
  const std::string name = "kformer::LearningRateSchedule: ";
  check({.learning_rate = 0})();
  check({.learning_rate = 1, .min_learning_rate = 2})();  // which a constant schedule does not read
  check_error<NotSupported>(check({.learning_rate = -1}),
                            name + "learning_rate must be between 0 and 3.4e38, the largest float, got -1");
  check_error<NotSupported>(check({.learning_rate = 1e308, .warmup_steps = 4}),
                            name + "learning_rate must be between 0 and 3.4e38, the largest float, got 1e+308");
  const LearningRateSchedule largest{.learning_rate = 3.4e38, .warmup_steps = std::int64_t{1} << 40};
  check(largest)();
  BOOST_TEST(largest.at(largest.warmup_steps - 1) == 3.4e38);
  check_error<NotSupported>(
      check({.kind = ScheduleKind::linear, .learning_rate = 1, .min_learning_rate = 2, .steps = 1}),
      name + "min_learning_rate must be between 0 and learning_rate, got 2");
  check_error<NotSupported>(check({.warmup_steps = -1}), name + "warmup_steps must not be negative, got -1");
  check_error<NotSupported>(check({.decay_steps = -2}), name + "decay_steps must not be negative, got -2");
  check_error<NotSupported>(check({.kind = ScheduleKind::cosine}),
                            name + "steps must be at least 1, except in a constant schedule, got 0");
  check_error<NotSupported>(check({.kind = static_cast<ScheduleKind>(7)}),
                            name +
                                "kind has the value 7, which its type does not name; choose one of: "
                                "constant, linear, cosine, wsd");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
