// SPDX-License-Identifier: MIT
#include "decks/layer_deck.hpp"

#include <utility>

#include "decks/engine/deck_of_kind.hpp"
#include "decks/layer_checks.hpp"
#include "decks/layer_schema.hpp"
#include "decks/model_config.hpp"
#include "decks/sweep/sweep_cases.hpp"
#include "io/schema/names_in.hpp"

namespace kformer {
namespace {

using namespace Impl::schema;

// Keys of the deck override the published configuration.
void merge_model_config(Table& root, Diagnostics& diagnostics) {
  const auto config = model_config_of(root);
  if (!config) return;
  Table model = read_layer_config(*config, diagnostics);
  auto& given = std::get<Table>(find(root, "model")->value.data);
  merge(model, std::move(given));
  given = std::move(model);
}

void fill_in_defaults(LayerSweepDeck& deck) {
  if (deck.tensors) return;
  if (deck.sweep.axes.batch.empty()) deck.sweep.axes.batch = {1};
  const auto names = names_in<ModelTable>();
  deck.model.known = {names.begin(), names.end()};
}

}  // namespace

LayerSweepDeck load_layer_deck(const DeckSource& source) {
  LoadedDeck loaded = load_deck(source, layer_sweep_kind);
  Diagnostics diagnostics;
  merge_model_config(loaded.root, diagnostics);
  auto deck = read_deck<LayerSweepDeck>(loaded, source, diagnostics);
  fill_in_defaults(deck);
  check_layer_deck(deck, loaded, diagnostics);
  diagnostics.throw_if_any();
  record_deck(deck, loaded);
  return deck;
}

std::vector<LayerCase> expand(const LayerSweepTable& sweep, const std::vector<std::string>& built_spaces) {
  return expand_sweep<LayerCase>(sweep.mode, sweep.axes, sweep.exclude, built_spaces);
}

template <>
std::string describe_deck_markdown<LayerSweepDeck>() {
  return deck_markdown<LayerSweepDeck>();
}

template <>
std::string describe_deck_json_schema<LayerSweepDeck>() {
  return deck_json_schema<LayerSweepDeck>(
      layer_sweep_kind, "One transformer layer, timed and checked over a grid of shapes and precisions.");
}

}  // namespace kformer
