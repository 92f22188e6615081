// SPDX-License-Identifier: MIT
#include "decks/memory/memory_plan_deck.hpp"

#include <set>
#include <utility>

#include "decks/engine/deck_of_kind.hpp"
#include "decks/generate_checks.hpp"
#include "decks/language_model.hpp"
#include "decks/memory/memory_plan_checks.hpp"
#include "decks/memory/memory_plan_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "decks/train/train_deck.hpp"
#include "io/schema/bytes.hpp"

namespace kformer {

using namespace Impl::schema;

MemoryPlanDeck load_memory_plan_deck(const DeckSource& source) {
  const LoadedDeck loaded = load_deck(source, memory_plan_kind);
  Diagnostics diagnostics;
  MemoryPlanDeck below;
  below.model = configured_language_model(loaded, diagnostics);
  diagnostics.throw_if_any();
  auto deck = read_deck(loaded, source, diagnostics, std::move(below));
  fill_in_recent(deck.plan.cache, "plan", loaded);
  if (deck.objective.kind == ObjectiveKind::grpo) {
    if (!deck.policy) deck.policy.emplace();
    // As such a training does.
    if (!has(loaded, {"plan", "batch_invariant"})) deck.plan.batch_invariant = true;
  }
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
    } else {
      point.recompute = Recompute::none;
    }
    if (known.insert(point).second) cases.push_back(std::move(point));
  }
  return cases;
}

std::optional<std::uint64_t> PlanMemoryTable::budget_bytes() const {
  if (budget.empty()) return {};
  return static_cast<std::uint64_t>(bytes_in(budget).value());
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
