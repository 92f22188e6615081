// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "kformer/train/preference_loss.hpp"
#include "objective/objective.hpp"

namespace kformer::drivers {

namespace {

constexpr const char* when = "with [objective] kind = \"dpo\"";

const std::array<FigureColumn, 4> columns{
    {{"accuracy", "share of pairs whose chosen completion has the higher reward", when},
     {"margin", "mean by which the reward of the chosen completion is higher, in nats", when},
     {"chosen_reward",
      "mean reward of chosen completions: beta times what log p exceeds that of the reference, in nats", when},
     {"rejected_reward", "mean reward of rejected completions", when}}};

Figures figures_of(const PreferenceLoss& result) {
  return {{"accuracy", result.accuracy},
          {"margin", result.margin},
          {"chosen_reward", result.chosen_reward},
          {"rejected_reward", result.rejected_reward}};
}

/// Log-probabilities of the completions of a set by the reference model.
class Reference {
 public:
  /// Of the weights as they are now.
  void measure(Learner& learner, const SequenceSource& data, std::int64_t micro_batch,
               const std::function<bool()>& stop) {
    std::vector<TokenSequence> part;
    for (std::int64_t first = 0; first < data.size() && !stop(); first += micro_batch) {
      part.resize(static_cast<std::size_t>(std::min(micro_batch, data.size() - first)));
      for (std::size_t i = 0; i < part.size(); ++i) data.read(first + static_cast<std::int64_t>(i), part[i]);
      const LogProbabilities logp = learner.log_probabilities(part, AdapterUse::on);
      for (std::size_t i = 0; i < part.size(); ++i) m_sums.push_back(logp.sum(i));
    }
  }
  std::vector<double> of(std::span<const std::int64_t> indices) const {
    std::vector<double> sums;
    for (const std::int64_t index : indices) sums.push_back(m_sums.at(static_cast<std::size_t>(index)));
    return sums;
  }

 private:
  std::vector<double> m_sums;  // by index of the sequence
};

class PairObjective final : public TrainingObjective {
 public:
  explicit PairObjective(const TrainDeck& deck)
      : m_options{.kind = *deck.objective.loss,
                  .beta = *deck.objective.beta,
                  .label_smoothing = *deck.objective.label_smoothing},
        m_adapters(deck.adapter.has_value()),
        m_micro_batch(deck.batch.micro_batch) {}

  std::span<const FigureColumn> figures() const override { return columns; }
  std::string description() const override {
    return fmt::format("dpo, {} loss, beta {}, label smoothing {}; reference: {}", name_of(m_options.kind),
                       m_options.beta, m_options.label_smoothing,
                       m_adapters ? "the model without adapters" : "the weights before the first step");
  }
  double other_forwards() const override { return m_adapters ? 1 : 0; }
  bool needs_first_weights() const override { return !m_adapters; }
  void begin(Learner& learner, const TrainingData& data, const std::function<bool()>& stop) override {
    m_train.measure(learner, *data.train, m_micro_batch, stop);
    if (data.validation) m_validation.measure(learner, *data.validation, m_micro_batch, stop);
  }

  ObjectiveStep step(Learner& learner, const SequenceBatch& batch) override {
    PreferenceObjective objective(references(learner, batch, m_train), m_options);
    ObjectiveStep result{learner.step(batch.sequences, std::ref(objective))};
    result.figures = figures_of(objective.result());
    return result;
  }
  Judgement judge(Learner& learner, const SequenceBatch& batch) override {
    PreferenceObjective objective(references(learner, batch, m_validation), m_options);
    objective(0, learner.log_probabilities(batch.sequences, AdapterUse::on));
    const PreferenceLoss& result = objective.result();
    return {
        .weight = static_cast<double>(result.pairs.size()), .loss = result.loss, .figures = figures_of(result)};
  }

 private:
  std::vector<double> references(Learner& learner, const SequenceBatch& batch, const Reference& before) const {
    if (!m_adapters) return before.of(batch.indices);
    const LogProbabilities logp = learner.log_probabilities(batch.sequences, AdapterUse::off);
    std::vector<double> sums;
    for (std::size_t i = 0; i < logp.sequences(); ++i) sums.push_back(logp.sum(i));
    return sums;
  }

  PreferenceOptions m_options;
  bool m_adapters;  // whether they learn
  std::int64_t m_micro_batch;
  Reference m_train, m_validation;  // without adapters
};

}  // namespace

std::vector<FigureColumn> preference_figures() { return {columns.begin(), columns.end()}; }

std::unique_ptr<TrainingObjective> make_preference_objective(const TrainDeck& deck) {
  return std::make_unique<PairObjective>(deck);
}

}  // namespace kformer::drivers
