// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <unordered_map>

#include "kformer/train/preference_loss.hpp"
#include "objective/objective.hpp"
#include "objective/training_order.hpp"

namespace kformer::drivers {

namespace {

constexpr const char* when = "with [objective] kind = \"dpo\"";

const std::array<FigureColumn, 4> columns{
    {{"accuracy", "share of pairs whose chosen completion has the higher reward", when},
     {"margin", "mean by which the reward of the chosen completion is higher, in nats", when},
     {"chosen_reward",
      "mean reward of chosen completions: beta times what log p exceeds that of the reference, in nats", when},
     {"rejected_reward", "mean reward of rejected completions", when}}};

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

bool are_finite(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

/// The loss of pairs, which is none where the model has diverged: its log-probabilities are no numbers.
class PairLoss {
 public:
  PairLoss(std::vector<double> references, const PreferenceOptions& options)
      : m_lost(!are_finite(references)), m_objective(std::move(references), options) {}
  ObjectiveShare operator()(std::size_t first, const LogProbabilities& logp) {
    m_lost |= !are_finite(logp.values);
    return m_lost ? no_loss(logp) : m_objective(first, logp);
  }
  double loss() const { return m_lost ? unknown : m_objective.result().loss; }
  /// Over the pairs, in the order of the columns.
  std::array<double, 4> means() const {
    if (m_lost) return {unknown, unknown, unknown, unknown};
    const PreferenceLoss& result = m_objective.result();
    return {result.accuracy, result.margin, result.chosen_reward, result.rejected_reward};
  }

 private:
  bool m_lost;
  PreferenceObjective m_objective;
};

Figures figures_of(std::span<const double> means) {
  Figures figures;
  for (std::size_t i = 0; i < columns.size(); ++i) figures[columns[i].name] = means[i];
  return figures;
}

/// Log-probabilities of completions by the reference model.
class Reference {
 public:
  explicit Reference(std::int64_t micro_batch) : m_size(micro_batch) {}

  /// Of the weights as they are now. Each rank measures some micro-batches, and knows all. A sequence is always measured with
  /// the same others, so that its bits do not depend on what else is wanted.
  /// \param wanted numbers of micro-batches in the order of the data
  void measure(Learner& learner, const SequenceSource& data, const std::set<std::int64_t>& wanted,
               const SequenceRanks& ranks, const std::function<bool()>& stop) {
    const std::vector<std::int64_t> numbers(wanted.begin(), wanted.end());
    std::vector<TokenSequence> part;
    for (std::int64_t done = 0; done < std::ssize(numbers) && !stop(); done += ranks.count()) {
      const std::int64_t own = done + ranks.rank();
      part.resize(own < std::ssize(numbers) ? size_of(numbers[static_cast<std::size_t>(own)], data) : 0);
      for (std::size_t i = 0; i < part.size(); ++i)
        data.read(numbers[static_cast<std::size_t>(own)] * m_size + static_cast<std::int64_t>(i), part[i]);
      std::vector<double> sums(static_cast<std::size_t>(m_size));
      if (!part.empty()) {
        const LogProbabilities logp = learner.log_probabilities(part);
        for (std::size_t i = 0; i < part.size(); ++i) sums[i] = logp.sum(i);
      }
      sums = ranks.gather(sums);
      for (std::int64_t r = 0; r < ranks.count() && done + r < std::ssize(numbers); ++r) {
        const auto first = sums.begin() + r * m_size;
        m_sums[numbers[static_cast<std::size_t>(done + r)]].assign(first, first + m_size);
      }
    }
  }
  std::vector<double> of(std::span<const std::int64_t> indices) const {
    std::vector<double> sums;
    for (const std::int64_t index : indices)
      sums.push_back(m_sums.at(index / m_size).at(static_cast<std::size_t>(index % m_size)));
    return sums;
  }

 private:
  // The last micro-batch may be shorter.
  std::size_t size_of(std::int64_t number, const SequenceSource& data) const {
    return static_cast<std::size_t>(std::min(m_size, data.size() - number * m_size));
  }

  std::int64_t m_size;                                           // of a micro-batch
  std::unordered_map<std::int64_t, std::vector<double>> m_sums;  // by its number
};

class PairObjective final : public TrainingObjective {
 public:
  PairObjective(const TrainDeck& deck, SequenceRanks ranks)
      : m_ranks(std::move(ranks)),
        m_options{.kind = *deck.objective.loss,
                  .beta = *deck.objective.beta,
                  .label_smoothing = *deck.objective.label_smoothing},
        m_deck(deck),
        m_adapters(deck.adapter.has_value()),
        m_train(deck.batch.micro_batch),
        m_validation(deck.batch.micro_batch) {}

  std::span<const FigureColumn> figures() const override { return columns; }
  std::string description() const override {
    return fmt::format("dpo, {} loss, beta {}, label smoothing {}; reference: {}", name_of(m_options.kind),
                       m_options.beta, m_options.label_smoothing,
                       m_adapters ? "the model without adapters" : "the weights before the first step");
  }
  double other_forwards() const override { return m_adapters ? 1 : 0; }
  bool needs_first_weights() const override { return !m_adapters; }
  void begin(Learner& learner, const TrainingData& data, StepRange steps,
             const std::function<bool()>& stop) override {
    m_train.measure(learner, *data.train, read_by(steps, *data.train), m_ranks, stop);
    if (!data.validation || !m_deck.evaluation) return;
    const std::int64_t wanted = m_deck.evaluation->sequences, all = data.validation->size();
    std::set<std::int64_t> judged;
    for (std::int64_t i = 0; i < (wanted > 0 ? std::min(wanted, all) : all); ++i)
      judged.insert(i / m_deck.batch.micro_batch);
    m_validation.measure(learner, *data.validation, judged, m_ranks, stop);
  }

  ObjectiveStep step(Learner& learner, const SequenceBatch& batch) override {
    // By their places in the step, of which the objective asks for those of this rank.
    std::vector<double> of_step(static_cast<std::size_t>(batch.in_step));
    const std::vector<double> own = references(learner, batch, m_train);
    for (std::size_t i = 0; i < own.size(); ++i) of_step[static_cast<std::size_t>(batch.places[i])] = own[i];
    PairLoss objective(std::move(of_step), m_options);
    ObjectiveStep result{learner.step(batch.sequences, std::ref(objective))};
    result.figures = figures_of(m_ranks.sum(objective.means()));
    return result;
  }
  Judgement judge(Learner& learner, const SequenceBatch& batch) override {
    PairLoss objective(references(learner, batch, m_validation), m_options);
    objective(0, learner.log_probabilities(batch.sequences));
    const auto pairs = static_cast<double>(batch.sequences.size()) / 2;
    Judgement judgement{.loss = {objective.loss() * pairs, pairs}, .figures = {}};
    for (const auto& [name, mean] : figures_of(objective.means()))
      judgement.figures[name] = {mean * pairs, pairs};
    return judgement;
  }

 private:
  std::vector<double> references(Learner& learner, const SequenceBatch& batch, const Reference& before) const {
    if (!m_adapters) return before.of(batch.indices);
    const LogProbabilities logp = learner.reference_log_probabilities(batch.sequences);
    std::vector<double> sums;
    for (std::size_t i = 0; i < logp.sequences(); ++i) sums.push_back(logp.sum(i));
    return sums;
  }

  // The micro-batches of the data that have what steps read. Two epochs have all.
  std::set<std::int64_t> read_by(StepRange steps, const SequenceSource& data) const {
    const TrainingOrder order(m_deck, data);
    const std::int64_t first = steps.first * m_deck.batch.sequences,
                       end = std::min(steps.end * m_deck.batch.sequences, first + 2 * data.size());
    std::set<std::int64_t> numbers;
    for (std::int64_t i = first; i < end; ++i) numbers.insert(order.at(i) / m_deck.batch.micro_batch);
    return numbers;
  }

  SequenceRanks m_ranks;
  PreferenceOptions m_options;
  const TrainDeck& m_deck;
  bool m_adapters;                  // whether they learn
  Reference m_train, m_validation;  // without adapters
};

}  // namespace

std::vector<FigureColumn> preference_figures() { return {columns.begin(), columns.end()}; }

std::unique_ptr<TrainingObjective> make_preference_objective(const TrainDeck& deck,
                                                             const SequenceRanks& ranks) {
  return std::make_unique<PairObjective>(deck, ranks);
}

}  // namespace kformer::drivers
