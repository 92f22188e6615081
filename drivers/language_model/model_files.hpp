// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>

#include "decks/generate_deck.hpp"
#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/text/tokenizer.hpp"

namespace kformer::drivers {

/// The checkpoint of a deck, checked against its own model description.
/// \throws FileError if a file cannot be read or does not match the model
Checkpoint open_checkpoint(const WeightsTable& weights);

/// An adapter, checked against the model that it is for.
/// \throws FileError if a file cannot be read or does not match the model
AdapterCheckpoint open_adapter(const std::filesystem::path& folder, const LlamaConfig& model);

/// The tokenizer of a deck: the one it names, or the one beside the checkpoint.
/// \throws FileError if a file cannot be read, or there is none
std::unique_ptr<const Tokenizer> open_tokenizer(const TokenizerTable& table, const Checkpoint& checkpoint);

}  // namespace kformer::drivers
