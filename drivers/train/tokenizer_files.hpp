// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "decks/generate_deck.hpp"
#include "kformer/io/checkpoint.hpp"

namespace kformer::drivers {

/// The files of a tokenizer that belong to a trained model.
struct TokenizerFiles {
  std::vector<std::pair<std::string, std::filesystem::path>>
      files;         ///< published names, and where to copy from
  std::string note;  ///< what a user should know; empty if there is nothing
};

/// Finds the files of the tokenizer of a deck.
/// \param table      how the tokenizer is chosen
/// \param checkpoint of [weights]; null: none
TokenizerFiles tokenizer_files(const TokenizerTable& table, const Checkpoint* checkpoint);

}  // namespace kformer::drivers
