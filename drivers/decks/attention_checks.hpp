// SPDX-License-Identifier: MIT
#pragma once

#include "decks/attention_deck.hpp"
#include "decks/engine/load.hpp"

namespace kformer::Impl::schema {

/// Reports what no single key of a comparison can be blamed for, and adds the warnings to the deck's record.
void check_attention_deck(AttentionCompareDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
