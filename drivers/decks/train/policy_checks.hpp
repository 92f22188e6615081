// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/load.hpp"
#include "decks/train/train_deck.hpp"

namespace kformer::Impl::schema {

/// Reports contradictions between keys of a training of objective grpo.
void check_policy(const TrainDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
