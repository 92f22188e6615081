// SPDX-License-Identifier: MIT
#pragma once

#include "io/deck/load.hpp"
#include "kformer/io/attention_deck.hpp"

namespace kformer::Impl::decks {

/// Reports what no single key of a comparison can be blamed for, and adds the warnings to the deck's record.
void check_attention_deck(AttentionCompareDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::decks
