// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "decks/generate_deck.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/text/tokenizer.hpp"

namespace kformer::drivers {

/// The checkpoint of a deck, checked against its own model description.
/// \throws FileError if a file cannot be read or does not match the model
Checkpoint open_checkpoint(const WeightsTable& weights);

/// The tokenizer of a deck: the one it names, or the one beside the checkpoint.
/// \throws FileError if a file cannot be read, or there is none
std::unique_ptr<const Tokenizer> open_tokenizer(const TokenizerTable& table, const Checkpoint& checkpoint);

}  // namespace kformer::drivers
