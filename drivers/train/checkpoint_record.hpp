// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "kformer/load/training_checkpoint.hpp"
#include "train/history.hpp"

/// \file
/// What a checkpoint says besides its arrays.

namespace kformer::drivers {

/// What is in the text of a checkpoint.
struct CheckpointText {
  std::map<std::string, std::string> run;       ///< what a run must have in common with the one it continues
  std::map<std::string, std::string> settings;  ///< what a run that continues it may change
  TrainerState state;                           ///< numbers of the trainer
};

/// All that a checkpoint says.
struct CheckpointRecord : CheckpointText {
  TrainingHistory history;  ///< all steps so far
};

/// As JSON: numbers read back to the same bits.
std::string checkpoint_text(const CheckpointText& contents);

/// The history, a column for each of its numbers.
CheckpointColumns checkpoint_columns(const TrainingHistory& history);

/// The record of a text and columns.
/// \param source name of the file in error texts
/// \throws FileError if they are not from checkpoint_text() and checkpoint_columns()
CheckpointRecord checkpoint_record(const std::string& text, const CheckpointColumns& columns,
                                   const std::string& source);

/// The keys of both with different values, in words: "optimizer.lr was 0.1 and is 0.2, ..."; empty if there is none.
std::string changes_text(const std::map<std::string, std::string>& now,
                         const std::map<std::string, std::string>& then);

/// Checks that a run can continue another one.
/// \throws FileError naming what differs
void require_same_run(const std::map<std::string, std::string>& now,
                      const std::map<std::string, std::string>& then, const std::string& source);

}  // namespace kformer::drivers
