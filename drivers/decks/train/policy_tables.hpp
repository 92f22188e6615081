// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kformer/core/types/policy_kind.hpp"
#include "kformer/data/rewards.hpp"

/// \file
/// The tables of objective "grpo": how completions are sampled, rewarded and learnt from.

namespace kformer {

/// The table [policy].
struct PolicyTable {
  std::int64_t group_size = 8;                     ///< completions of a prompt
  std::int64_t updates = 1;                        ///< steps that learn from the same completions
  PolicyKind loss = PolicyKind::dapo;              ///< what losses are averaged over
  RewardScale scale_rewards = RewardScale::group;  ///< what rewards less their mean are divided by
  double epsilon_low = 0.2;                        ///< ratios below 1 − ε are clipped
  double epsilon_high = 0.2;                       ///< ratios above 1 + ε are clipped
  double delta = 0;                                ///< no ratio counts as more, 0: no limit
  double beta = 0;                                 ///< weight of the divergence from the reference
  bool mask_truncated = false;                     ///< completions that reached `max_new_tokens` do not count
  std::int64_t max_new_tokens = 64;                ///< of a completion
  std::int64_t sample_batch = 0;                   ///< completions that are sampled together, 0: all of a step
  double temperature = 1;                          ///< of sampling
  std::int64_t top_k = 0;                          ///< sample from the most probable tokens, 0 = all
  double top_p = 1;                                ///< sample from the smallest set of this probability
  /// Whether the first weights are kept: the reference, unless that is the model without adapters.
  bool keeps_first_weights(bool adapters) const { return beta > 0 && !adapters; }
  bool operator==(const PolicyTable&) const = default;  ///< all keys equal
};

/// One [[reward]].
struct RewardTable : RewardOptions {
  bool operator==(const RewardTable& other) const {
    return kind == other.kind && weight == other.weight && field == other.field &&
           ignore_case == other.ignore_case && pattern == other.pattern && target == other.target &&
           unit == other.unit && command == other.command && timeout_s == other.timeout_s;
  }
};

}  // namespace kformer
