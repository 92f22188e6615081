// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string_view>

#include "decks/engine/deck.hpp"
#include "io/schema/diagnostics.hpp"

namespace kformer::Impl::schema {

/// A deck with what it includes and the overrides merged into one tree.
struct LoadedDeck {
  Table root;
  std::shared_ptr<const SourceText> source;  ///< the deck file itself
};

/// Reads a deck, its includes and its overrides, and checks `schema` and `kind`.
/// \throws FileError if the deck file cannot be read
/// \throws DeckError if a text is not TOML, an include fails, or schema or kind do not fit: then no table can
/// be
///                   judged
LoadedDeck load_deck(const DeckSource& source, std::string_view kind);

}  // namespace kformer::Impl::schema
