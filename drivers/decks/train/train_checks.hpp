// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "decks/engine/load.hpp"
#include "decks/train/train_deck.hpp"

namespace kformer::Impl::schema {

/// Completes the model, reports contradictions between keys of a training, and adds the warnings to the deck's
/// record.
void check_train_deck(TrainDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Reports contradictions between keys of [adapter].
void check_adapter(const AdapterTable& table, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
