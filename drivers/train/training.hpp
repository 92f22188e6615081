// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "decks/train/train_deck.hpp"
#include "kformer/io/result_file.hpp"
#include "kformer/load/training_checkpoint.hpp"
#include "train/model_folder.hpp"

namespace kformer::drivers {

/// Where what was trained goes.
struct OutputFolders {
  std::optional<ModelFolder> model, adapter;
};

/// Prints what a deck would train: model, data, steps, memory.
/// \throws OutOfMemory if it needs more than its budget, or than is free
void print_training_plan(const TrainDeck& deck, const std::string& space);

/// Trains, writes everything down, saves model and adapter, and closes the file.
/// \param folders    of the trained model and adapter
/// \param checkpoint to continue from; nothing: from the beginning
/// \returns the exit code
int train(const TrainDeck& deck, const std::string& space, const OutputFolders& folders,
          std::optional<TrainingCheckpoint> checkpoint, ResultFile& file);

}  // namespace kformer::drivers
