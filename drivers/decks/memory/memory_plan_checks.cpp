// SPDX-License-Identifier: MIT
#include "decks/memory/memory_plan_checks.hpp"

#include <fmt/format.h>

#include "decks/generate_checks.hpp"
#include "decks/language_model.hpp"
#include "decks/memory/memory_plan_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "decks/train/train_checks.hpp"

namespace kformer::Impl::schema {
namespace {

void check_source(const MemoryPlanDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.model && !deck.weights)
    diagnostics.error({loaded.source, 1, 1, 0}, "no model to plan for; add [model] or [weights]");
  if (deck.model && deck.weights)
    diagnostics.error(place_of(loaded, {"weights"}),
                      "[model] and [weights] both define the model; remove one of them");
}

// Only for a valid sweep. With adapters, quantised weights stay as they are.
void check_training(const MemoryPlanDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (deck.adapter) return;
  for (const auto& point : cases_of<MemoryCase>(deck.sweep.mode, deck.sweep.axes)) {
    if (point.purpose != PlanPurpose::train || point.weights == WeightStorage::same ||
        excluded(deck.sweep.exclude, point))
      continue;
    diagnostics.error(
        place_of(loaded, {"sweep", "weights"}),
        fmt::format("'sweep.weights' = \"{}\" cannot be trained; add [adapter], or leave such cases out "
                    "with [[sweep.exclude]]",
                    name_of(point.weights)));
    return;
  }
}

}  // namespace

void check_memory_plan_deck(MemoryPlanDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_source(deck, loaded, diagnostics);
  if (deck.model) check_language_model(*deck.model, loaded, diagnostics);
  for (const KvCacheKind kind : deck.sweep.axes.kv_cache)
    check_cache(kind, deck.plan.cache, "plan", {"sweep", "kv_cache"}, loaded, diagnostics);
  check_budget(deck.memory.budget, loaded, diagnostics);
  if (deck.adapter) check_adapter(*deck.adapter, loaded, diagnostics);
  if (deck.plan.live_adapters > 0 && !deck.adapter)
    diagnostics.error(place_of(loaded, {"plan", "live_adapters"}),
                      "'plan.live_adapters' needs [adapter], which says their ranks");
  if (deck.plan.live_adapters > 0 && deck.adapter && deck.adapter->dora)
    diagnostics.error(
        place_of(loaded, {"adapter", "dora"}),
        "'adapter.dora' is not for 'plan.live_adapters': a decoder applies no magnitudes; remove it");
  check_spaces(deck.sweep.axes.execution_space, loaded, diagnostics);
  check_number_of_cases(deck.sweep, loaded, diagnostics);
  check_zip(deck.sweep, loaded, diagnostics);
  check_run_and_output(deck.run, deck.output, loaded, diagnostics);
  if (!diagnostics.empty()) return;
  check_exclusions<MemoryCase>(deck.sweep.mode, deck.sweep.axes, deck.sweep.exclude, loaded,
                               deck.record.warnings, diagnostics);
  check_training(deck, loaded, diagnostics);
}

}  // namespace kformer::Impl::schema
