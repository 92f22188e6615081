// SPDX-License-Identifier: MIT
#include "decks/memory/memory_plan_checks.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "decks/generate_checks.hpp"
#include "decks/language_model.hpp"
#include "decks/memory/memory_plan_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "decks/train/parallel_checks.hpp"
#include "decks/train/policy_checks.hpp"
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

using Path = std::vector<std::string>;

std::string whole_pairs(const char* key, std::int64_t count) {
  return fmt::format("'{}' = {} must be even with 'objective.kind' = \"dpo\": a pair is two sequences", key,
                     count);
}

void check_objective(const MemoryPlanDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const auto error = [&](const Path& key, const std::string& text) {
    diagnostics.error(place_of(loaded, key), text);
  };
  const std::int64_t sequences = deck.training.sequences;
  if (deck.objective.kind == ObjectiveKind::dpo && sequences % 2 != 0)
    error({"training", "sequences"}, whole_pairs("training.sequences", sequences));
  if (deck.parallel)
    if (const auto fault = objective_fault(*deck.parallel, deck.objective.kind))
      error({"parallel", fault->key}, fault->text);
  if (deck.parallel && !deck.grids && deck.parallel->tensor >= 1 && deck.parallel->pipeline >= 1 &&
      deck.parallel->parts >= 1)
    check_divided(*deck.parallel, Recompute::pointwise, deck.model, loaded, diagnostics);
  if (deck.grids && deck.parallel && deck.parallel->ranks() > 1)
    error({"grids"},
          "[grids] looks for the extents of [parallel]; remove 'parallel.data', 'context', 'tensor' and "
          "'pipeline'");
  if (deck.grids && deck.parallel && deck.parallel->zero > 0)
    error({"parallel", "zero"}, "[grids] tries every 'parallel.zero'; remove it");
  if (!deck.policy) return;
  if (deck.objective.kind != ObjectiveKind::grpo)
    return error({"policy"}, fmt::format("[policy] is for 'objective.kind' = \"grpo\", not \"{}\"",
                                         name_of(deck.objective.kind)));
  check_sampler(*deck.policy, deck.adapter, loaded, diagnostics);
  if (sequences > 0) {
    check_groups(*deck.policy, {"training", "sequences"}, sequences, loaded, diagnostics);
    check_sample_batch(*deck.policy, "training.sequences", sequences, loaded, diagnostics);
  }
  if (deck.training.accumulate && sequences == 0)
    error({"training", "accumulate"},
          "'training.accumulate' with 'objective.kind' = \"grpo\" needs 'training.sequences', which says "
          "how many completions are sampled");
}

// What is wrong with a training: the axis, and a sentence.
std::optional<std::pair<std::string, std::string>> fault_of(const MemoryPlanDeck& deck,
                                                            const MemoryCase& point) {
  const std::int64_t sequences = deck.training.sequences;
  if (sequences > 0 && point.batch > sequences)
    return {{"batch", fmt::format("'sweep.batch' = {}, the sequences of a micro-batch, is more than "
                                  "training.sequences = {}, those of a step",
                                  point.batch, sequences)}};
  if (deck.parallel && !deck.grids && sequences > 0)
    if (const auto fault = share_fault(*deck.parallel, {.sequences = "training.sequences",
                                                        .batch = "sweep.batch",
                                                        .change = "these",
                                                        .sequences_of_step = sequences,
                                                        .sequences_of_micro_batch = point.batch}))
      return {{"batch", fault->text}};
  if (deck.parallel && deck.parallel->context > 1 && point.context % (2 * deck.parallel->context) != 0)
    return {
        {"context", fmt::format("'sweep.context': {} tokens are no multiple of {}, two chunks for each of the "
                                "'parallel.context' = {} ranks",
                                point.context, 2 * deck.parallel->context, deck.parallel->context)}};
  if (deck.parallel && !deck.grids && deck.parallel->sequence && deck.parallel->context > 0 &&
      deck.parallel->tensor > 0 &&
      point.batch * point.context / deck.parallel->context % deck.parallel->tensor != 0)
    return {
        {"batch",
         fmt::format("'sweep.batch' = {} sequences of {} tokens are not divided by the 'parallel.tensor' = {} "
                     "ranks, as 'parallel.sequence' wants",
                     point.batch, point.context, deck.parallel->tensor)}};
  if (deck.parallel && deck.parallel->pipeline > 1 &&
      (point.recompute == Recompute::nested || point.recompute == Recompute::offload ||
       (point.recompute == Recompute::layer && deck.parallel->schedule == PipelineSchedule::zero_bubble)))
    return {{"recompute",
             fmt::format("'sweep.recompute' = \"{}\" is not for 'parallel.pipeline' = {} with the schedule {}",
                         name_of(point.recompute), deck.parallel->pipeline, name_of(deck.parallel->schedule))}};
  if (deck.objective.kind == ObjectiveKind::dpo && point.batch % 2 != 0)
    return {{"batch", whole_pairs("sweep.batch", point.batch)}};
  if (deck.optimizer.states == OptimizerStates::eight_bit && point.dtype == DType::f64)
    return {
        {"dtype",
         "'sweep.dtype' = \"f64\" is not for 'optimizer.states' = \"int8\"; change one of them, or leave such "
         "cases out with [[sweep.exclude]]"}};
  // With adapters, quantised weights stay as they are.
  if (!deck.adapter && point.weights != WeightStorage::same)
    return {{"weights", fmt::format("'sweep.weights' = \"{}\" cannot be trained; add [adapter], or leave such "
                                    "cases out with [[sweep.exclude]]",
                                    name_of(point.weights))}};
  return {};
}

// Only for a valid sweep.
void check_training(const MemoryPlanDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  for (MemoryCase& point : cases_of<MemoryCase>(deck.sweep.mode, deck.sweep.axes)) {
    if (point.purpose != PlanPurpose::train || excluded(deck.sweep.exclude, point)) continue;
    if (point.context == 0 && deck.model) point.context = deck.model->max_position_embeddings;
    const auto fault = fault_of(deck, point);
    if (!fault) continue;
    diagnostics.error(place_of(loaded, {"sweep", fault->first}), fault->second);
    return;
  }
}

}  // namespace

void check_memory_plan_deck(MemoryPlanDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_source(deck, loaded, diagnostics);
  if (deck.model) check_language_model(*deck.model, loaded, diagnostics);
  for (const KvCacheKind kind : deck.sweep.axes.kv_cache)
    check_cache(kind, deck.plan.cache, "plan", {"sweep", "kv_cache"}, loaded, diagnostics);
  if (deck.adapter) check_adapter(*deck.adapter, loaded, diagnostics);
  check_objective(deck, loaded, diagnostics);
  if (deck.parallel && !deck.grids) warn_of_one_rank(*deck.parallel, loaded, deck.record.warnings);
  if (deck.plan.live_adapters > 0 && !deck.adapter)
    diagnostics.error(place_of(loaded, {"plan", "live_adapters"}),
                      "'plan.live_adapters' needs [adapter], which says their ranks");
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
