// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/json_schema.hpp"
#include "decks/engine/key_names.hpp"
#include "decks/engine/load.hpp"
#include "decks/engine/markdown.hpp"
#include "decks/engine/writer.hpp"
#include "io/schema/reader.hpp"

/// \file
/// Operations on a whole deck, by its `describe` function.

namespace kformer::Impl::schema {

/// The deck from its keys, without checks between keys. Absent keys are as in `deck`.
template <class Deck>
Deck read_deck(const LoadedDeck& loaded, const DeckSource& source, Diagnostics& diagnostics, Deck deck = {}) {
  KeyNames names;
  Deck described;
  describe(names, described);
  Reader reader(loaded.root, {loaded.source, 1, 1, 0}, "", diagnostics, &names.names());
  describe(reader, deck);
  reader.report_unknown();
  if (deck.run.name.empty()) deck.run.name = source.path.stem().string();
  return deck;
}

/// Records how a valid deck was read.
template <class Deck>
void record_deck(Deck& deck, const LoadedDeck& loaded) {
  Writer writer;
  describe(writer, deck);
  deck.record.text = loaded.source->text;
  deck.record.resolved = writer.text();
}

template <class Deck>
std::string deck_markdown() {
  Deck deck;
  Markdown markdown;
  describe(markdown, deck);
  return markdown_heading("", "Keys before the first table.") + markdown.text();
}

template <class Deck>
std::string deck_json_schema(std::string_view kind, const char* help) {
  Deck deck;
  JsonSchema schema;
  describe(schema, deck);
  Json text{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "Kformer deck: " + std::string(kind)}};
  text.update(schema.object(help));
  return text.dump(2) + "\n";
}

}  // namespace kformer::Impl::schema
