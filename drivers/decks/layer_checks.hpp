// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/load.hpp"
#include "decks/layer_deck.hpp"

namespace kformer::Impl::schema {

/// Reports the faults of a layer sweep that involve several keys: required keys with several sources
/// and contradictions between keys. Completes the model, unless the tensor file has the last word on it, and
/// adds the warnings to the deck's record.
void check_layer_deck(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
