// SPDX-License-Identifier: MIT
#pragma once

#include "decks/generate_deck.hpp"
#include "language_model/text_engine.hpp"

/// \file
/// Keys of decks as options of the library.

namespace kformer::drivers {

/// The cache of an engine whose other sizes are known.
KvCacheOptions cache_options(KvCacheKind kind, const KvCacheTable& table, const EngineTask& task);

}  // namespace kformer::drivers
