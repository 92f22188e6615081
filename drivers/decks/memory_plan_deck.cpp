// SPDX-License-Identifier: MIT
#include "decks/memory_plan_deck.hpp"

#include <set>
#include <utility>

#include "decks/engine/deck_of_kind.hpp"
#include "decks/generate_checks.hpp"
#include "decks/memory_plan_checks.hpp"
#include "decks/memory_plan_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"

namespace kformer {
namespace {

using namespace Impl::schema;

// The model that the deck's `config` says, below the keys of the deck itself.
std::optional<LanguageModelTable> configured_model(const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const Entry* config = find_path(loaded.root, {"model", "config"});
  const auto* name = config != nullptr ? std::get_if<std::string>(&config->value.data) : nullptr;
  if (name == nullptr || name->empty()) return {};
  const Place place = config->value.place;
  try {
    return read_model_config((place.source->directory / *name).lexically_normal());
  } catch (const FileError& error) {
    diagnostics.error(place, error.what());
    return {};
  }
}

}  // namespace

MemoryPlanDeck load_memory_plan_deck(const DeckSource& source) {
  const LoadedDeck loaded = load_deck(source, memory_plan_kind);
  Diagnostics diagnostics;
  MemoryPlanDeck below;
  below.model = configured_model(loaded, diagnostics);
  diagnostics.throw_if_any();
  auto deck = read_deck(loaded, source, diagnostics, std::move(below));
  fill_in_recent(deck.plan.cache, "plan", loaded);
  check_memory_plan_deck(deck, loaded, diagnostics);
  diagnostics.throw_if_any();
  record_deck(deck, loaded);
  return deck;
}

std::vector<MemoryCase> expand(const MemorySweepTable& sweep, const LanguageModelTable& model,
                               const std::vector<std::string>& built_spaces) {
  std::vector<MemoryCase> cases;
  std::set<MemoryCase> known;
  for (MemoryCase& point : expand_sweep<MemoryCase>(sweep.mode, sweep.axes, sweep.exclude, built_spaces)) {
    if (point.context == 0) point.context = model.max_position_embeddings;
    if (point.purpose == PlanPurpose::train) {
      point.kv_cache = KvCacheKind::none;
      point.prefill_chunk = 0;
    }
    if (known.insert(point).second) cases.push_back(std::move(point));
  }
  return cases;
}

template <>
std::string describe_deck_markdown<MemoryPlanDeck>() {
  return deck_markdown<MemoryPlanDeck>();
}

template <>
std::string describe_deck_json_schema<MemoryPlanDeck>() {
  return deck_json_schema<MemoryPlanDeck>(memory_plan_kind,
                                          "Memory use of a model, over a grid of batches, contexts and types.");
}

}  // namespace kformer
