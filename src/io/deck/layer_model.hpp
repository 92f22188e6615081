// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kformer/io/layer_deck.hpp"

namespace kformer::Impl::decks {

/// The contradictions between the keys that are not 0; nothing is derived.
std::vector<ModelFault> model_faults(const ModelTable& model);

}  // namespace kformer::Impl::decks
