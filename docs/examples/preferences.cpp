// SPDX-License-Identifier: MIT
// Learning from preferences and from rewards: from log-probabilities to losses and their derivatives. Checks that a step along the
// derivative lowers the loss.
#include <cstdint>
#include <iostream>
#include <vector>

#include "kformer/train/group_advantages.hpp"
#include "kformer/train/policy_loss.hpp"
#include "kformer/train/preference_loss.hpp"

int main() {
  // [pairs]
  // Sums over the tokens of completions: minus what LlamaModel::loss returns, of the policy and of the reference.
  std::vector<kformer::PreferencePair> pairs{{.chosen = {.policy = -7.5, .reference = -8.0, .tokens = 12},
                                              .rejected = {.policy = -9.0, .reference = -8.5, .tokens = 9}},
                                             {.chosen = {.policy = -3.0, .reference = -2.0, .tokens = 4},
                                              .rejected = {.policy = -1.0, .reference = -1.5, .tokens = 2}}};
  const auto preferences = kformer::preference_loss(pairs, {.beta = 0.1});
  // dloss of each token of the first completion, for LlamaModel::backward
  const double dloss = -preferences.pairs[0].dchosen;
  // [pairs]
  std::cout << "preferences: loss " << preferences.loss << ", accuracy " << preferences.accuracy << "\n";
  const double before = preferences.loss;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].chosen.policy -= preferences.pairs[i].dchosen;
    pairs[i].rejected.policy -= preferences.pairs[i].drejected;
  }
  const double after = kformer::preference_loss(pairs, {.beta = 0.1}).loss;

  // [policy]
  // Two completions of one prompt, of three tokens and one; the first is the better one.
  const std::vector<double> rewards{1, 0};
  const auto advantages = kformer::group_advantages(rewards, 2).advantages;
  std::vector<double> logp{-0.7, -1.2, -0.1, -2.0};
  const std::vector<double> old_logp = logp;  // the policy that sampled them
  const std::vector<std::int64_t> offsets{0, 3, 4};
  const kformer::PolicyLossOperands operands{.logp = logp,
                                             .old_logp = old_logp,
                                             .reference_logp = {},
                                             .mask = {},
                                             .offsets = offsets,
                                             .advantages = advantages};
  const auto policy = kformer::policy_loss(operands, {.kind = kformer::PolicyKind::dapo, .epsilon_high = 0.28});
  // dloss of token t is -policy.dlogp[t]
  // [policy]
  std::cout << "policy: loss " << policy.loss << ", mean ratio " << policy.statistics.mean_ratio() << "\n";
  for (std::size_t t = 0; t < logp.size(); ++t) logp[t] -= 0.1 * policy.dlogp[t];
  const auto improved =
      kformer::policy_loss(operands, {.kind = kformer::PolicyKind::dapo, .epsilon_high = 0.28});

  return dloss > 0 && after < before && policy.statistics.mean_ratio() == 1 && improved.loss < policy.loss ? 0
                                                                                                           : 1;
}
