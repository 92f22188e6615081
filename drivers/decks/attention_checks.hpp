// SPDX-License-Identifier: MIT
#pragma once

#include "decks/attention_deck.hpp"
#include "decks/engine/load.hpp"

namespace kformer::Impl::schema {

/// Reports contradictions between keys of a comparison, and adds the warnings to the deck's record.
void check_attention_deck(AttentionCompareDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
