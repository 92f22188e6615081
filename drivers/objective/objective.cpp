// SPDX-License-Identifier: MIT
#include "objective/objective.hpp"

#include <algorithm>

namespace kformer::drivers {

namespace {

// The mean loss of target tokens, which the data determine.
class TokenObjective final : public TrainingObjective {
 public:
  ObjectiveStep step(Learner& learner, const SequenceBatch& batch) override {
    return {learner.step(batch.sequences)};
  }
  Judgement judge(Learner& learner, const SequenceBatch& batch) override {
    std::int64_t targets = 0;
    for (const TokenSequence& s : batch.sequences)
      targets += std::ranges::count_if(s.targets, [](std::int32_t id) { return id >= 0; });
    if (targets == 0) return {};
    const auto count = static_cast<double>(targets);
    return {.loss = {learner.evaluate(batch.sequences) * count, count}, .figures = {}};
  }
};

}  // namespace

void TrainingObjective::begin(Learner&, const TrainingData&, StepRange, const std::function<bool()>&) {}

ObjectiveShare no_loss(const LogProbabilities& logp) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  return {unknown, std::vector(logp.values.size(), unknown)};
}

std::unique_ptr<TrainingObjective> make_objective(const TrainDeck& deck, const SequenceRanks& ranks) {
  switch (deck.objective.kind) {
    case ObjectiveKind::next_token:
    case ObjectiveKind::completion:
      break;
    case ObjectiveKind::dpo:
      return make_preference_objective(deck, ranks);
    case ObjectiveKind::grpo:
      return make_policy_objective(deck, ranks);
  }
  return std::make_unique<TokenObjective>();
}

}  // namespace kformer::drivers
