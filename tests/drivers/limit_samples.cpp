// SPDX-License-Identifier: MIT
#include "sweep/limit_samples.hpp"

#include <boost/test/unit_test.hpp>

namespace {

using namespace std::chrono_literals;
using kformer::DType;
using kformer::drivers::LimitSamples;

/// Samples that are numbered, at times that the test sets.
struct Numbered {
  LimitSamples::Clock::time_point now;
  int taken = 0;
  double bytes = 0;
  LimitSamples samples{[this](const std::string&, DType, double moved) {
                         bytes = moved;
                         return kformer::measure::CaseLimits{static_cast<double>(++taken), 1};
                       },
                       [this] { return now; }};

  double of(const std::string& space, DType dtype, double moved) {
    return samples.now(space, dtype, moved).flop_rate;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(limit_samples)

BOOST_AUTO_TEST_CASE(a_sample_is_valid_for_a_second) {
  Numbered numbered;
  BOOST_TEST(numbered.of("Serial", DType::f32, 1000) == 1);
  numbered.now += 999ms;
  BOOST_TEST(numbered.of("Serial", DType::f32, 1000) == 1);
  numbered.now += 1ms;
  BOOST_TEST(numbered.of("Serial", DType::f32, 1000) == 2);
  numbered.now += 999ms;
  BOOST_TEST(numbered.of("Serial", DType::f32, 1000) == 2);
}

BOOST_AUTO_TEST_CASE(cases_share_a_sample_if_space_type_and_size_are_the_same) {
  Numbered numbered;
  BOOST_TEST(numbered.of("Serial", DType::f32, 1000) == 1);
  BOOST_TEST(numbered.bytes == 512);
  BOOST_TEST(numbered.of("Serial", DType::f32, 600) == 1);
  BOOST_TEST(numbered.of("Serial", DType::f32, 1024) == 2);
  BOOST_TEST(numbered.of("Serial", DType::bf16, 1000) == 3);
  BOOST_TEST(numbered.of("OpenMP", DType::f32, 1000) == 4);
  BOOST_TEST(numbered.of("Serial", DType::f32, 0) == 5);
  BOOST_TEST(numbered.bytes == 1);
}

BOOST_AUTO_TEST_SUITE_END()
