// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "generate/prompt_encoder.hpp"
#include "learner/learner.hpp"
#include "objective/sequence_ranks.hpp"
#include "objective/sequence_source.hpp"

/// \file
/// What a training minimises: the table [objective].

namespace kformer::drivers {

/// What an objective measures besides its loss, by name.
using Figures = std::map<std::string, double>;

/// A number that an objective measures besides its loss: a column of /steps and /evaluations.
struct FigureColumn {
  std::string name;  ///< also on the terminal
  std::string help;  ///< what it is
  std::string when;  ///< which objectives measure it
};

/// What `dpo` measures.
std::vector<FigureColumn> preference_figures();

/// What `grpo` measures, with a column for each of several rewards.
std::vector<FigureColumn> policy_figures(const std::vector<std::string>& rewards);

/// What a step of an objective did.
struct ObjectiveStep : StepReport {
  Figures figures;  ///< of its sequences, before the update
};

/// A part of a mean. Not every figure is of all that is judged: a program may have no reward for a completion.
struct PartialMean {
  double sum = 0;    ///< of those that have a value
  double count = 0;  ///< of them
  /// NaN without any.
  double mean() const { return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN(); }
  /// Takes in another part.
  PartialMean& operator+=(const PartialMean& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
};

/// Parts of what an objective measures besides its loss, by name.
using PartialFigures = std::map<std::string, PartialMean>;

/// What an objective says of validation data.
struct Judgement {
  PartialMean loss;        ///< of target tokens, pairs or completions with a reward
  PartialFigures figures;  ///< each of those that have it
};

/// Steps of a training.
struct StepRange {
  std::int64_t first = 0;  ///< from 0
  std::int64_t end = 0;    ///< behind the last one
};

/// The loss of a training, and what belongs to it.
class TrainingObjective {
 public:
  virtual ~TrainingObjective() = default;
  /// What it measures.
  virtual std::span<const FigureColumn> figures() const { return {}; }
  /// In words; empty if there is nothing to say.
  virtual std::string description() const { return {}; }
  /// Called once, before anything is allocated, with the data and the tokenizer of the model, which must stay.
  virtual void open(const TrainingData&, const PromptEncoder*) {}
  /// Steps that learn from the same sequences.
  virtual std::int64_t updates() const { return 1; }
  /// Forward passes of each token besides those of learning.
  virtual double other_forwards() const { return 0; }
  /// Whether `begin` reads the weights that the training began with.
  virtual bool needs_first_weights() const { return false; }
  /// Called once, with these weights.
  /// \param steps that will be done
  /// \param stop  whether to give up: then there will be no step. Ranks give up together
  virtual void begin(Learner& learner, const TrainingData& data, StepRange steps,
                     const std::function<bool()>& stop);
  /// Learns from sequences of the training data. What it returns is of all ranks that share the step.
  virtual ObjectiveStep step(Learner& learner, const SequenceBatch& batch) = 0;
  /// Judges some sequences of the validation data; those that belong together are together. Other ranks judge others.
  virtual Judgement judge(Learner& learner, const SequenceBatch& batch) = 0;
};

/// The share of a micro-batch of a model that has diverged: no numbers, so that its step is skipped as any other with
/// gradients that are not finite.
ObjectiveShare no_loss(const LogProbabilities& logp);

/// The objective of a deck.
/// \param ranks that share the sequences of a step
std::unique_ptr<TrainingObjective> make_objective(const TrainDeck& deck, const SequenceRanks& ranks = {});

/// `grpo`.
std::unique_ptr<TrainingObjective> make_policy_objective(const TrainDeck& deck, const SequenceRanks& ranks);

/// `dpo`.
std::unique_ptr<TrainingObjective> make_preference_objective(const TrainDeck& deck, const SequenceRanks& ranks);

}  // namespace kformer::drivers
