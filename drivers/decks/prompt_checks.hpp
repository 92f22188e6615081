// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/load.hpp"
#include "decks/generate_deck.hpp"

namespace kformer::Impl::schema {

/// A text must fit into a line of the resolved deck.
void check_length_of_text(const std::string& text, const std::string& name, const Place& place,
                          Diagnostics& diagnostics);

/// Checks that there are prompts, each with one text, readable files and a unique name.
void check_prompts(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
