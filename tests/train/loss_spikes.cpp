// SPDX-License-Identifier: MIT
#include "kformer/train/loss_spikes.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>
#include <random>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A window of 1, 3, 1, 3: mean 2, deviation 1.
LossSpikes filled(const LossSpikeOptions& options) {
  LossSpikes spikes(options);
  for (const double x : {1.0, 3.0, 1.0, 3.0}) BOOST_TEST(spikes.accept(x, x));
  return spikes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loss_spikes)

BOOST_AUTO_TEST_CASE(off_by_default) {
  LossSpikes spikes;
  for (int i = 0; i < 200; ++i) BOOST_TEST(spikes.accept(1, 1));
  BOOST_TEST(spikes.accept(1e9, infinity));
  BOOST_TEST(spikes.losses().empty());
}

BOOST_AUTO_TEST_CASE(the_limit_is_a_z_score) {
  const LossSpikeOptions loss{.loss_z = 2, .window = 4}, norm{.norm_z = 2, .window = 4};
  BOOST_TEST(filled(loss).accept(4, 1e9));
  BOOST_TEST(!filled(loss).accept(4.0001, 0));
  BOOST_TEST(filled(norm).accept(1e9, 4));
  BOOST_TEST(!filled(norm).accept(0, 4.0001));
  BOOST_TEST(filled(loss).accept(-1e9, 1));  // far below is no spike
}

BOOST_AUTO_TEST_CASE(nothing_is_a_spike_before_the_window_is_full) {
  LossSpikes spikes({.loss_z = 2, .window = 4});
  for (const double x : {1.0, 1000.0, 1.0}) BOOST_TEST(spikes.accept(x, x));
  BOOST_TEST(spikes.accept(1e6, 1));
  BOOST_TEST(!spikes.accept(1e9, 1));
}

BOOST_AUTO_TEST_CASE(equal_steps_have_no_score) {
  LossSpikes spikes({.loss_z = 2, .window = 4});
  for (int i = 0; i < 4; ++i) BOOST_TEST(spikes.accept(1, 1));
  BOOST_TEST(spikes.accept(100, 1));
}

BOOST_AUTO_TEST_CASE(skipped_steps_are_part_of_the_window) {
  LossSpikes spikes = filled({.loss_z = 2, .window = 4});
  BOOST_TEST(!spikes.accept(50, 1));
  BOOST_TEST((spikes.losses() == std::vector<double>{3, 1, 3, 50}));
  BOOST_TEST(spikes.accept(2, 7));
  BOOST_TEST((spikes.losses() == std::vector<double>{1, 3, 50, 2}));
  BOOST_TEST((spikes.norms() == std::vector<double>{1, 3, 1, 7}));
}

// Or training would stand still from there on.
BOOST_AUTO_TEST_CASE(a_lasting_shift_is_accepted_soon) {
  for (const std::int64_t window : {8, 128}) {
    LossSpikes spikes({.loss_z = 3, .norm_z = 3, .window = window});
    std::mt19937 generator(1);
    std::normal_distribution<double> normal(0, 0.1);
    for (std::int64_t i = 0; i < window; ++i) BOOST_TEST(spikes.accept(2 + normal(generator), 1));
    BOOST_TEST(!spikes.accept(5, 1));
    int skipped = 0;
    for (std::int64_t i = 0; i < window; ++i) skipped += !spikes.accept(5 + normal(generator), 1);
    BOOST_TEST(skipped < window / 4);
    BOOST_TEST(spikes.accept(5, 1));
  }
}

BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_are_spikes) {
  LossSpikes spikes({.loss_z = 2, .window = 4});
  for (const double x : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    BOOST_TEST(!spikes.accept(x, 1));
    BOOST_TEST(!spikes.accept(1, x));
  }
  BOOST_TEST(spikes.losses().empty());
}

BOOST_AUTO_TEST_CASE(a_restored_detector_decides_alike) {
  const LossSpikeOptions options{.loss_z = 1.5, .norm_z = 1.5};
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  LossSpikes whole(options);
  int skipped = 0;
  for (int i = 0; i < 300; ++i) {
    LossSpikes resumed(options);
    resumed.restore(whole.losses(), whole.norms());
    const double loss = 3 + normal(generator), norm = 1 + normal(generator);
    const bool accepted = whole.accept(loss, norm);
    BOOST_TEST(resumed.accept(loss, norm) == accepted);
    skipped += !accepted;
  }
  BOOST_TEST(skipped > 0);
  BOOST_TEST(whole.losses().size() == 128u);
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  check_error<NotSupported>(
      [] { LossSpikes({.loss_z = -1}); },
      "kformer::LossSpikes: loss_z and norm_z must not be negative, got -1 and 0; 0 turns "
      "them off");
  check_error<NotSupported>([] { LossSpikes({.window = 1}); },
                            "kformer::LossSpikes: the window must have at least 2 steps, got 1");
  check_error<NotSupported>(
      [] { LossSpikes({.window = 2}).restore({1, 2, 3}, {1, 2}); },
      "kformer::LossSpikes: a window of 3 losses and 2 norms cannot be restored: expected as many of both");
}

BOOST_AUTO_TEST_CASE(a_shorter_window_continues_with_the_newest_steps) {
  LossSpikes spikes({.loss_z = 2, .window = 2});
  spikes.restore({1, 2, 3}, {4, 5, 6});
  BOOST_TEST((spikes.losses() == std::vector<double>{2, 3}));
  BOOST_TEST((spikes.norms() == std::vector<double>{5, 6}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
