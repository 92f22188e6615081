// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "decks/engine/load.hpp"
#include "kformer/io/model_table.hpp"

/// \file
/// The table [model] of decks whose model is a whole language model.

namespace kformer::Impl::schema {

/// The keys of the file that the deck's `model.config` names, if it names one; the keys of the deck go over them. What
/// follows from keys is derived from both, by check_language_model().
std::optional<LanguageModelTable> configured_language_model(const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Completes the model, and reports missing keys and contradictions.
void check_language_model(LanguageModelTable& model, const LoadedDeck& loaded, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
