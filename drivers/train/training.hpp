// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "decks/train/train_deck.hpp"
#include "kformer/io/result_file.hpp"
#include "train/model_folder.hpp"

namespace kformer::drivers {

/// Prints what a deck would train: model, data, steps, memory.
void print_training_plan(const TrainDeck& deck, const std::string& space);

/// Trains, writes everything down, saves the model, and closes the file.
/// \param folder of the trained model; null: none
/// \returns the exit code
int train(const TrainDeck& deck, const std::string& space, const ModelFolder* folder, ResultFile& file);

}  // namespace kformer::drivers
