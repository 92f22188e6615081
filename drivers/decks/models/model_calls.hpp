// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// \file
/// What a model on the command line means: as overrides of a deck, or as a deck of its own.

namespace kformer {

/// The overrides by which a deck takes another model: the keys of a published model, or `model.config` of a folder.
/// \param model name of a published model, or a folder with config.json
/// \throws FileError if it is neither
std::vector<std::string> layer_model_overrides(const std::string& model);

/// The deck of kind "layer_sweep" that a model alone means.
/// \throws FileError as `layer_model_overrides`
std::string layer_deck_of(const std::string& model);

/// The deck of kind "memory_plan" that a model alone means: generation with dense and quantised weights, and training.
/// \param model     name of a published model, or a folder or file of a checkpoint
/// \param overrides of the deck, as --set has them: they decide whether training with quantised weights is left out
/// \throws FileError if it is neither
std::string memory_deck_of(const std::string& model, const std::vector<std::string>& overrides);

/// The deck of kind "generate" that a checkpoint and prompts mean.
/// \param chat whether prompts are questions to a model that holds conversations, rather than texts to continue
std::string generate_deck_of(const std::filesystem::path& checkpoint, const std::vector<std::string>& prompts,
                             bool chat);

/// The checkpoint that the command line names.
/// \throws FileError if there is none; for a published model it says how to get one
std::filesystem::path checkpoint_of(const std::string& model);

}  // namespace kformer
