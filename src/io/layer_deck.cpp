// SPDX-License-Identifier: MIT
#include "kformer/io/layer_deck.hpp"

#include <utility>

#include "io/deck/json_schema.hpp"
#include "io/deck/layer_checks.hpp"
#include "io/deck/layer_schema.hpp"
#include "io/deck/load.hpp"
#include "io/deck/markdown.hpp"
#include "io/deck/model_config.hpp"
#include "io/deck/names_in.hpp"
#include "io/deck/reader.hpp"
#include "io/deck/writer.hpp"

namespace kformer {
namespace {

using namespace Impl::decks;

// The published configuration lies below whatever the deck says about the model.
void merge_model_config(Table& root, Diagnostics& diagnostics) {
  const Entry* config = find_path(root, {"model", "config"});
  const auto* name = config != nullptr ? std::get_if<std::string>(&config->value.data) : nullptr;
  if (name == nullptr || name->empty()) return;
  const Place place = config->value.place;
  Table model = read_model_config((place.source->directory / *name).lexically_normal(), place, diagnostics);
  auto& given = std::get<Table>(find(root, "model")->value.data);
  merge(model, std::move(given));
  given = std::move(model);
}

void fill_in_defaults(LayerSweepDeck& deck, const DeckSource& source) {
  if (deck.run.name.empty()) deck.run.name = source.path.stem().string();
  if (deck.tensors) return;
  if (deck.sweep.axes.batch.empty()) deck.sweep.axes.batch = {1};
  const auto names = names_in<ModelTable>();
  deck.model.known = {names.begin(), names.end()};
}

std::string resolved_text(LayerSweepDeck& deck) {
  Writer writer;
  describe(writer, deck);
  return writer.text();
}

}  // namespace

LayerSweepDeck load_layer_deck(const DeckSource& source) {
  LoadedDeck loaded = load_deck(source, layer_sweep_kind);
  Diagnostics diagnostics;
  merge_model_config(loaded.root, diagnostics);
  LayerSweepDeck deck;
  Reader reader(loaded.root, {loaded.source, 1, 1, 0}, "", diagnostics);
  describe(reader, deck);
  reader.report_unknown();
  fill_in_defaults(deck, source);
  check_layer_deck(deck, loaded, diagnostics);
  diagnostics.throw_if_any();
  deck.record.text = loaded.source->text;
  deck.record.resolved = resolved_text(deck);
  return deck;
}

template <>
std::string describe_deck_markdown<LayerSweepDeck>() {
  LayerSweepDeck deck;
  Markdown markdown;
  describe(markdown, deck);
  return markdown_heading("", "The keys before the first table.") + markdown.text();
}

template <>
std::string describe_deck_json_schema<LayerSweepDeck>() {
  LayerSweepDeck deck;
  JsonSchema schema;
  describe(schema, deck);
  Json text{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "Kformer deck: layer_sweep"}};
  text.update(schema.object("One transformer layer, timed and checked over a grid of shapes and precisions."));
  return text.dump(2) + "\n";
}

}  // namespace kformer
