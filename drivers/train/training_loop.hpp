// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "app/ranks.hpp"
#include "kformer/parallel/gradient_tree.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "objective/objective.hpp"
#include "objective/sequence_source.hpp"
#include "objective/training_order.hpp"
#include "train/checkpoint_record.hpp"
#include "train/progress.hpp"
#include "train/text_writer.hpp"
#include "train/train_results.hpp"

namespace kformer::drivers {

/// What the main loop works with.
struct TrainingLoop {
  const TrainDeck* deck;                        ///< how often to evaluate, …
  Ranks* ranks;                                 ///< that train together
  const RankGrid* grid;                         ///< the same, by what they divide
  const TrainingData* data;                     ///< sequences
  std::int64_t steps;                           ///< of the training
  double least_scale;                           ///< of the losses
  std::map<std::string, std::string> run;       ///< see `CheckpointRecord`
  std::map<std::string, std::string> settings;  ///< see `CheckpointRecord`
  TrainingObjective* objective;                 ///< what is learnt
  Learner* learner;                             ///< prepared, or restored
  const TextWriter* texts;                      ///< null without [samples]
  const Ledger* ledger;                         ///< its memory
  TrainResults* results;                        ///< where everything is written down
  Progress* progress;                           ///< what a user sees
  /// Why the run should stop, if it should; called between steps, and on the way through evaluations and texts. What
  /// is not complete then is done again by the run that continues.
  std::function<std::optional<std::string>()> stop;
  /// Called around a step that the deck profiles.
  std::function<void(const std::function<void()>& step)> profile;
};

/// How a training ended.
struct TrainingEnd {
  ComputedTokens computed;             ///< by the steps of this run, except for the one that was profiled
  double seconds = 0;                  ///< of these steps
  std::int64_t steps = 0;              ///< of this run
  std::int64_t skipped = 0;            ///< of these, that left the weights as they were
  std::int64_t unequal = 0;            ///< of these, whose sampler and trainer broke the promise of equal bits
  std::int64_t checkpoints = 0;        ///< written
  double checkpoint_wait = 0;          ///< s, that the steps waited for them
  double last_checkpoint_wait = 0;     ///< s, from the last step to the end of the last checkpoint
  std::optional<std::string> stopped;  ///< why, if it is to be continued
  std::string failure;                 ///< why it was in vain; empty if it was not, or is to be continued
};

/// The micro-batches of a step, and which rank has which.
LeafShares micro_batches_of_rank(const TrainDeck& deck);

/// Trains from the step after the last one of `history` to the end, an early stop, or a request to stop. Evaluates,
/// writes texts and saves checkpoints on the way, in this order, and at the end of a training all three.
/// \throws FileError if a checkpoint or the result file cannot be written
TrainingEnd run_training(const TrainingLoop& loop, TrainingHistory history);

}  // namespace kformer::drivers
