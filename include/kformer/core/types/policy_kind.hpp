// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// What the clipped losses of tokens are averaged over.
enum class PolicyKind {
  grpo,     ///< the tokens of each completion, then completions (arXiv:2402.03300)
  dr_grpo,  ///< completions and their largest number of tokens: long ones count no less (arXiv:2503.20783)
  dapo,     ///< the tokens of all completions of a generation (arXiv:2503.14476)
  bnpo      ///< the tokens of the batch of a step
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<PolicyKind> = {"grpo", "dr_grpo", "dapo", "bnpo"};

/// What the rewards of a group, less their mean, are divided by.
enum class RewardScale {
  group,  ///< the standard deviation of the group
  batch,  ///< that of all rewards (arXiv:2508.08221)
  none    ///< nothing (arXiv:2503.20783)
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 3> names_of<RewardScale> = {"group", "batch", "none"};

}  // namespace kformer
