// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "decks/train/train_deck.hpp"
#include "kformer/io/result_file.hpp"
#include "kformer/load/training_checkpoint.hpp"
#include "train/model_folder.hpp"

namespace kformer::drivers {

/// Prints what a deck would train: model, data, steps, memory.
/// \throws OutOfMemory if it needs more than its budget, or than is free
void print_training_plan(const TrainDeck& deck, const std::string& space);

/// Trains, writes everything down, saves the model, and closes the file.
/// \param folder     of the trained model; null: none
/// \param checkpoint to continue from; nothing: from the beginning
/// \returns the exit code
int train(const TrainDeck& deck, const std::string& space, const ModelFolder* folder,
          std::optional<TrainingCheckpoint> checkpoint, ResultFile& file);

}  // namespace kformer::drivers
