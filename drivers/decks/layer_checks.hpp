// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "decks/engine/load.hpp"
#include "decks/layer_deck.hpp"

namespace kformer::Impl::schema {

/// Reports the faults of a layer sweep that involve several keys: required keys with several sources
/// and contradictions between keys. Completes the model, unless the tensor file has the last word on it, and
/// adds the warnings to the deck's record.
void check_layer_deck(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Contradictions between the keys of loss scaling in [precision], and warnings of those without effect.
/// \param rule_key the key of [precision] with the kind of loss scaling
void check_loss_scale(const LossScaleTable& table, const char* rule_key, const LoadedDeck& loaded,
                      std::vector<std::string>& warnings, Diagnostics& diagnostics);

/// The value of a key is less than 1: ranges of keys have closed ends.
void check_below_one(const char* table, const char* key, double value, const LoadedDeck& loaded,
                     Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
