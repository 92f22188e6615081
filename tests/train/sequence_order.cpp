// SPDX-License-Identifier: MIT
#include "kformer/train/sequence_order.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

std::vector<std::int64_t> epoch_of(const SequenceOrder& order, std::int64_t count, std::int64_t epoch) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(order.at(epoch * count + i));
  return all;
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sequence_order)

BOOST_AUTO_TEST_CASE(every_epoch_has_every_sequence_once) {
  for (const std::int64_t count :
       {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 255, 256, 257, 1000, 1023, 1024, 1025, 65537})
    for (const std::uint64_t seed : {0u, 1u, 12345u})
      for (const std::int64_t epoch : {0, 1, 2, 1000000}) {
        auto all = epoch_of(SequenceOrder(count, true, seed), count, epoch);
        std::sort(all.begin(), all.end());
        BOOST_TEST((all == numbers(count)), count << " sequences, seed " << seed << ", epoch " << epoch);
      }
}

BOOST_AUTO_TEST_CASE(without_shuffling_epochs_are_in_order) {
  const SequenceOrder order(5, false, 7);
  for (const std::int64_t epoch : {0, 3}) BOOST_TEST((epoch_of(order, 5, epoch) == numbers(5)));
}

BOOST_AUTO_TEST_CASE(orders_differ_between_epochs_and_seeds_and_repeat) {
  for (const std::int64_t count : {16, 100, 1000}) {
    const SequenceOrder order(count, true, 1), same(count, true, 1), other(count, true, 2);
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      BOOST_TEST((epoch_of(order, count, epoch) == epoch_of(same, count, epoch)));
      BOOST_TEST((epoch_of(order, count, epoch) != epoch_of(order, count, epoch + 1)));
      BOOST_TEST((epoch_of(order, count, epoch) != epoch_of(other, count, epoch)));
      BOOST_TEST((epoch_of(order, count, epoch) != numbers(count)));
    }
  }
}

// Every sequence is as often in every place: the statistic is χ² with (count − 1)² degrees of freedom, whose
// deviation is √(2 (count − 1)²). Five of them are exceeded by chance once in a million.
BOOST_AUTO_TEST_CASE(places_are_uniform) {
  for (const std::int64_t count : {3, 10, 31}) {
    constexpr std::int64_t epochs = 20000;
    const auto n = static_cast<std::size_t>(count);
    std::vector<double> seen(n * n);
    const SequenceOrder order(count, true, 2026);
    for (std::int64_t p = 0; p < epochs * count; ++p)
      ++seen[static_cast<std::size_t>(p % count) * n + static_cast<std::size_t>(order.at(p))];
    const double expected = static_cast<double>(epochs) / static_cast<double>(count);
    double statistic = 0;
    for (const double s : seen) statistic += (s - expected) * (s - expected) / expected;
    const double freedom = static_cast<double>((count - 1) * (count - 1));
    BOOST_TEST(std::abs(statistic - freedom) < 5 * std::sqrt(2 * freedom),
               count << " sequences: " << statistic);
  }
}

// The order is part of what a resumed run needs, so it may not change between versions.
BOOST_AUTO_TEST_CASE(the_order_is_what_it_was) {
  const std::vector<std::int64_t> expected{9, 0, 8, 4, 7, 2, 3, 5, 1, 6};
  BOOST_TEST(epoch_of(SequenceOrder(10, true, 1), 10, 0) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(there_must_be_a_sequence) {
  check_error<NotSupported>([] { SequenceOrder(0, true, 1); },
                            "kformer::SequenceOrder: expected at least one sequence, got 0");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
