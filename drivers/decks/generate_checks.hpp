// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/load.hpp"
#include "decks/generate_deck.hpp"

namespace kformer::Impl::schema {

/// Reports contradictions between keys of a generation.
void check_generate_deck(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Contradictions between [tokenizer] and, where there is one, the checkpoint.
void check_tokenizer(const TokenizerTable& tokenizer, const std::optional<WeightsTable>& weights,
                     const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Half of the budget is for recent tokens unless `table` of the deck sets it.
void fill_in_recent(KvCacheTable& cache, const char* table, const LoadedDeck& loaded);

/// The cache has the sizes it needs. `table` is the one that holds them, `kind_key` the path of the key that
/// asks for this kind of cache.
void check_cache(KvCacheKind kind, const KvCacheTable& cache, const char* table,
                 const std::vector<std::string>& kind_key, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
