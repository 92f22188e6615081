// SPDX-License-Identifier: MIT
#pragma once

#include "common/text_engine.hpp"
#include "kformer/io/generate_deck.hpp"

/// \file
/// Keys of decks as options of the library.

namespace kformer::drivers {

/// The cache of an engine whose other sizes are known.
KvCacheOptions cache_options(KvCacheImpl kind, const KvCacheTable& table, const EngineTask& task);

/// What quantised weights are multiplied with.
Activations activations_of(ActivationStorage storage);

}  // namespace kformer::drivers
