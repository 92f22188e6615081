// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "generate/prompt_encoder.hpp"
#include "kformer/io/checkpoint.hpp"
#include "learner/memory_policy.hpp"
#include "train/sequence_source.hpp"

/// \file
/// All that is known of a training before it starts.

namespace kformer::drivers {

/// The parts of a training.
struct TrainingPlan {
  std::optional<Checkpoint> checkpoint;    ///< of [weights]
  LanguageModelTable model;                ///< of [weights] or [model]
  std::unique_ptr<PromptEncoder> encoder;  ///< null if nothing needs a tokenizer
  TrainingData data;                       ///< sequences
  std::string note;        ///< on a tokenizer that may be another model's; empty if there is none
  std::int64_t steps = 0;  ///< of the training
  LearnerTask task;        ///< all but `recompute`
};

/// Opens the checkpoint, the tokenizer and the data of a deck.
/// \throws FileError if a file cannot be read, or does not match the model
/// \throws NotSupported if the training would have no step, or the schedule does not fit its steps
TrainingPlan plan_training(const TrainDeck& deck);

/// What a run must have in common with the one it continues: names and values.
std::map<std::string, std::string> identity_of(const TrainDeck& deck, const TrainingPlan& plan);

/// The plan as lines of text: parameters, data, steps.
std::string plan_text(const TrainDeck& deck, const TrainingPlan& plan);

/// Memory and recomputation as lines of text.
std::string memory_text(const TrainDeck& deck, const MemoryDecision& memory,
                        const std::optional<std::size_t>& limit);

}  // namespace kformer::drivers
