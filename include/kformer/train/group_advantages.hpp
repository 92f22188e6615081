// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kformer/core/types/policy_kind.hpp"

/// \file
/// From rewards of completions to their advantages (docs/preferences.md). Free of Kokkos.

namespace kformer {

/// The result of `group_advantages`.
struct GroupAdvantages {
  std::vector<double> advantages;  ///< (rewards) A
  std::int64_t equal_groups = 0;   ///< groups whose rewards are all equal: nothing is learnt from them
};

/// How much better a completion is than others of its prompt (Shao et al., arXiv:2402.03300, sect. 4.1.2):
///
///     A = (r − m) / (s + 10⁻⁴)        A = r − m for `RewardScale::none`
///
/// with the mean m of its group, and the sample standard deviation s (divided by n − 1) of its group or of all rewards,
/// as TRL's `scale_rewards` says. A reward of NaN says that a completion could not be judged: it takes part in no mean,
/// and its advantage is 0. The advantages of a group with fewer than two rewards, or with equal ones, are exactly 0.
/// \param rewards    (groups · group_size), completions of one prompt after another
/// \param group_size completions of each prompt
/// \param scale      what they are divided by
/// \throws DimensionMismatch if the rewards are not whole groups
/// \throws NotSupported naming a reward that is infinite, or if rewards are so large that s is
GroupAdvantages group_advantages(std::span<const double> rewards, std::int64_t group_size,
                                 RewardScale scale = RewardScale::group);

}  // namespace kformer
