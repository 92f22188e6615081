// SPDX-License-Identifier: MIT
#include "kformer/train/group_advantages.hpp"

#include <algorithm>
#include <cmath>

#include "kformer/core/error.hpp"
#include "kformer/core/option_checks.hpp"
#include "train/require.hpp"

namespace kformer {

namespace {

constexpr Impl::Require require{"group_advantages"};

/// What is added to standard deviations, as TRL does.
constexpr double least_deviation = 1e-4;

/// Mean and sample standard deviation of the rewards that are there.
struct Moments {
  std::int64_t count = 0;
  double mean = 0, deviation = 0;
  bool equal = true;
};

Moments moments_of(std::span<const double> rewards) {
  Moments moments;
  double least = 0, most = 0;
  for (const double reward : rewards) {
    if (std::isnan(reward)) continue;
    least = moments.count == 0 ? reward : std::min(least, reward);
    most = moments.count == 0 ? reward : std::max(most, reward);
    moments.mean += reward;
    ++moments.count;
  }
  moments.equal = least == most;
  if (moments.count < 2) return moments;
  moments.mean /= static_cast<double>(moments.count);
  double squares = 0;
  for (const double reward : rewards)
    if (!std::isnan(reward)) squares += (reward - moments.mean) * (reward - moments.mean);
  moments.deviation = std::sqrt(squares / static_cast<double>(moments.count - 1));
  require(std::isfinite(moments.deviation),
          "the standard deviation of the rewards overflows; make them smaller");
  return moments;
}

}  // namespace

GroupAdvantages group_advantages(std::span<const double> rewards, std::int64_t group_size, RewardScale scale) {
  Impl::require_enumerator("group_advantages", "scale", scale);
  if (group_size < 1 || std::ssize(rewards) % group_size != 0)
    throw DimensionMismatch("kformer::group_advantages: there are " + std::to_string(rewards.size()) +
                            " rewards; expected groups of " + std::to_string(group_size));
  for (std::size_t i = 0; i < rewards.size(); ++i)
    require(!std::isinf(rewards[i]), "reward ", i, " is ", rewards[i],
            "; expected a finite number, or NaN if there is no reward");
  const double of_batch = scale == RewardScale::batch ? moments_of(rewards).deviation : 0;
  GroupAdvantages result;
  result.advantages.reserve(rewards.size());
  const auto size = static_cast<std::size_t>(group_size);
  for (std::size_t begin = 0; begin < rewards.size(); begin += size) {
    const auto group = rewards.subspan(begin, size);
    const Moments moments = moments_of(group);
    const double deviation = scale == RewardScale::batch ? of_batch : moments.deviation;
    const double divisor = scale == RewardScale::none ? 1 : deviation + least_deviation;
    result.equal_groups += moments.equal ? 1 : 0;
    for (const double reward : group)
      result.advantages.push_back(moments.equal || std::isnan(reward) ? 0 : (reward - moments.mean) / divisor);
  }
  return result;
}

}  // namespace kformer
