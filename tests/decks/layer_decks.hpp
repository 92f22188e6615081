// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "deck_case.hpp"
#include "decks/layer_deck.hpp"

/// \file
/// Decks of layer sweeps, from which the tests start.

namespace kformer::Testing {

inline const std::string header = header_of("layer_sweep");
inline const std::string model = "[model]\nhidden_size = 64\nnum_attention_heads = 4\nintermediate_size = 96\n";
inline const std::string good = header + model + "[sweep]\nseq_len = 16\n";
inline const std::string with_tensors = header + "[tensors]\ninput = \"case.safetensors\"\n";

using LayerDecks = DeckCase<load_layer_deck>;

}  // namespace kformer::Testing
