// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "train/history.hpp"

/// \file
/// What a checkpoint says besides its arrays.

namespace kformer::drivers {

/// The text of a checkpoint.
struct CheckpointRecord {
  std::map<std::string, std::string> run;  ///< what a run must have in common with the one it continues
  TrainerState state;                      ///< numbers of the trainer
  TrainingHistory history;                 ///< all steps so far
};

/// The record as JSON: numbers read back to the same bits.
std::string checkpoint_text(const CheckpointRecord& record);

/// The record of a text.
/// \param source name of the file in error texts
/// \throws FileError if the text is not from checkpoint_text()
CheckpointRecord checkpoint_record(const std::string& text, const std::string& source);

/// Checks that a run can continue another one.
/// \throws FileError naming what differs
void require_same_run(const std::map<std::string, std::string>& now,
                      const std::map<std::string, std::string>& then, const std::string& source);

}  // namespace kformer::drivers
