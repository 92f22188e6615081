// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "app/ranks.hpp"
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
/// \param ranks of which this one's memory is forecast; the deck may want more
void print_training_plan(const TrainDeck& deck, const std::string& space, const Ranks& ranks);

/// Trains, writes everything down, saves model and adapter, and closes the file.
/// \param folders    of the trained model and adapter
/// \param checkpoint to continue from; nothing: from the beginning
/// \param ranks      that train together
/// \returns the exit code
int train(const TrainDeck& deck, const std::string& space, const OutputFolders& folders,
          std::optional<TrainingCheckpoint> checkpoint, ResultFile& file, Ranks& ranks);

}  // namespace kformer::drivers
