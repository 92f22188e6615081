// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decks/engine/load.hpp"
#include "decks/train/train_deck.hpp"

/// \file
/// What [parallel] does not go with.

namespace kformer::Impl::schema {

/// The key of [parallel] that something does not go with, and why.
struct ParallelFault {
  const char* key;
  std::string text;
};
/// Nothing, if the ranks can share the objective.
std::optional<ParallelFault> objective_fault(const PlanParallelTable& table, ObjectiveKind kind);

/// The micro-batches of a step, and the keys that say how many there are.
struct StepKeys {
  const char *sequences, *batch;  ///< keys
  const char* change;             ///< what may be changed in their place
  std::int64_t sequences_of_step, sequences_of_micro_batch;
};
/// Nothing, if each of the `data` ranks has a micro-batch, and with a fixed order as many as make a node of its tree.
std::optional<ParallelFault> share_fault(const PlanParallelTable& table, const StepKeys& step);

/// Why a schedule does not go with so many parts of the model on each rank of a pipeline: a sentence, or nothing.
/// \param table that has the keys `schedule` and `parts`
std::string parts_fault(const char* table, PipelineSchedule schedule, std::int64_t parts);

/// Reports what does not go with the ranks of [parallel].
/// \param recompute what layers keep
/// \param model     none: it is in a checkpoint, which `undivided_extent` is asked about later
void check_divided(const PlanParallelTable& table, Recompute recompute,
                   const std::optional<LanguageModelTable>& model, const LoadedDeck& loaded,
                   Diagnostics& diagnostics);

/// Warns of what several ranks of `data` and `context` do, if there is one.
void warn_of_one_rank(const PlanParallelTable& table, const LoadedDeck& loaded,
                      std::vector<std::string>& warnings);

/// The extent of a model that the ranks of [parallel] cannot divide, or its window: a sentence, which begins with the key, or
/// nothing.
std::string undivided_extent(const PlanParallelTable& table, const LanguageModelTable& model);

}  // namespace kformer::Impl::schema
