// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "objective/objective.hpp"

/// \file
/// Everything that a training has to say about its steps. It is part of each checkpoint, so that a run that was
/// resumed knows all of them.

namespace kformer::drivers {

/// A step and how long it took.
struct StepRecord : ObjectiveStep {
  double time = 0;  ///< s, from reading its sequences to the end of its update; NaN if it was profiled
};

/// The loss on the validation data.
struct EvaluationRecord {
  std::int64_t step = 0;  ///< steps done before
  double loss = 0;        ///< see the column of /evaluations
  double time = 0;        ///< s
  Figures figures{};      ///< of the same data
};

/// A text that the model wrote.
struct SampleRecord {
  std::int64_t step = 0;  ///< steps done before
  std::string prompt;     ///< its beginning
  std::string text;       ///< what follows
};

/// A checkpoint, and how long the training stood still for it.
struct CheckpointWait {
  std::int64_t step = 0;  ///< steps done before
  double waited = 0;      ///< s, until the next step could begin
};

/// The past of a training.
struct TrainingHistory {
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<SampleRecord> samples;
};

/// Whether the loss of the last `patience` evaluations was no better than one before them.
bool stops_early(const EarlyStopTable& table, const std::vector<EvaluationRecord>& evaluations);

/// Why a training that did all its steps has failed, one sentence; empty if it has not. Its last step tells: the loss
/// is not finite, or the gradients are not with the least loss scale there is. So do steps of which none changed the
/// weights, or whose completions had no reward. A step that is skipped because the loss scale is too large is no failure.
/// \param steps       all of the training
/// \param least_scale of the losses
std::string failure_text(const std::vector<StepRecord>& steps, double least_scale);

}  // namespace kformer::drivers
