// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/load.hpp"
#include "decks/memory/memory_plan_deck.hpp"

namespace kformer::Impl::schema {

/// Completes the model, reports contradictions between keys of a plan, and adds the warnings to the
/// deck's record.
void check_memory_plan_deck(MemoryPlanDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
