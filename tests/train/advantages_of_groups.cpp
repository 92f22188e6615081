// SPDX-License-Identifier: MIT
#include "kformer/train/group_advantages.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr RewardScale scales[] = {RewardScale::group, RewardScale::batch, RewardScale::none};

void check_advantages(const std::vector<double>& rewards, std::int64_t group_size, RewardScale scale,
                      const std::vector<double>& expected) {
  const auto found = group_advantages(rewards, group_size, scale).advantages;
  BOOST_REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    BOOST_TEST(found[i] == expected[i], boost::test_tools::tolerance(1e-14));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(advantages_of_groups)

BOOST_AUTO_TEST_CASE(by_hand) {
  // Means 3 and 0; sample deviations 2 and 0 of the groups; squares 4, 0, 4 and thrice 2.5² less of the batch.
  const std::vector<double> rewards{1, 3, 5, 0, 0, 0};
  check_advantages(rewards, 3, RewardScale::none, {-2, 0, 2, 0, 0, 0});
  check_advantages(rewards, 3, RewardScale::group, {-2 / 2.0001, 0, 2 / 2.0001, 0, 0, 0});
  const double of_batch = std::sqrt((35 - 13.5) / 5);
  check_advantages(rewards, 3, RewardScale::batch, {-2 / (of_batch + 1e-4), 0, 2 / (of_batch + 1e-4), 0, 0, 0});
  BOOST_TEST(group_advantages(rewards, 3).equal_groups == 1);
  BOOST_TEST(group_advantages(rewards, 2).equal_groups == 1);
  BOOST_TEST(group_advantages(rewards, 6).equal_groups == 0);
}

BOOST_AUTO_TEST_CASE(equal_rewards_teach_nothing) {
  for (const RewardScale scale : scales)
    for (const std::int64_t size : {1, 3, 7})
      // The mean of tenths is not a tenth.
      for (const double reward : {0.1, -0.1}) {
        const std::vector<double> rewards(static_cast<std::size_t>(3 * size), reward);
        const auto result = group_advantages(rewards, size, scale);
        for (const double advantage : result.advantages) BOOST_TEST(advantage == 0);
        BOOST_TEST(result.equal_groups == 3);
      }
}

BOOST_AUTO_TEST_CASE(rewards_that_are_missing) {
  const std::vector<double> rewards{1, nan, 5, nan, 7, nan, nan, nan, nan};
  check_advantages(rewards, 3, RewardScale::none, {-2, 0, 2, 0, 0, 0, 0, 0, 0});
  const double deviation = std::sqrt(8.0) + 1e-4;
  check_advantages(rewards, 3, RewardScale::group, {-2 / deviation, 0, 2 / deviation, 0, 0, 0, 0, 0, 0});
  const double of_batch = std::sqrt((1 + 25 + 49 - 169 / 3.0) / 2) + 1e-4;
  check_advantages(rewards, 3, RewardScale::batch, {-2 / of_batch, 0, 2 / of_batch, 0, 0, 0, 0, 0, 0});
  BOOST_TEST(group_advantages(rewards, 3).equal_groups == 2);
}

BOOST_AUTO_TEST_CASE(no_rewards) {
  BOOST_TEST(group_advantages({}, 4).advantages.empty());
  BOOST_TEST(group_advantages({}, 4, RewardScale::batch).equal_groups == 0);
}

BOOST_AUTO_TEST_CASE(refusals) {
  const std::vector<double> rewards{1, 2, 3, 4};
  for (const std::int64_t size : {0, -1, 3, 5})
    check_error<DimensionMismatch>(
        [&] { group_advantages(rewards, size); },
        "kformer::group_advantages: there are 4 rewards; expected groups of " + std::to_string(size));
  check_error<NotSupported>(
      [] { group_advantages(std::vector<double>{1, -infinity}, 2); },
      "kformer::group_advantages: reward 1 is -inf; expected a finite number, or NaN if there is no reward");
  check_error<NotSupported>(
      [] { group_advantages(std::vector<double>{1e200, 0}, 2); },
      "kformer::group_advantages: the standard deviation of the rewards overflows; make them smaller");
  check_error<NotSupported>(
      [&] { group_advantages(rewards, 2, static_cast<RewardScale>(3)); },
      "kformer::group_advantages: scale has the value 3, which its type does not name; choose "
      "one of: group, batch, none");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
