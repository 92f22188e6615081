// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "learner/learner.hpp"
#include "learner/memory_policy.hpp"

namespace kformer::drivers {

/// The ranks of a training as a grid.
/// \param world all that were started; of others than `table` has, one can be forecast
/// \param table none: one rank
/// \param rank  which is forecast, if it is not the first
RankGrid grid_of(const std::shared_ptr<Communicator>& world, const PlanParallelTable* table, int rank = 0);

/// Shares a training among ranks: its steps, its model, its checkpoints, and what ZeRO divides.
/// \param grid          the ranks
/// \param table         how
/// \param micro_batches of a step, of all ranks
/// \param task          of this rank
void share_among(const RankGrid& grid, const PlanParallelTable& table, std::int64_t micro_batches,
                 LearnerTask& task);

/// The memory of the rank that needs most, of those that have the first micro-batches.
/// \param table         none: there is one rank
/// \param micro_batches of a step, of all ranks
/// \param task          shared by nobody yet
/// \param decide        the memory of ranks of a stage, which need one plan and among which the task is shared
MemoryDecision of_largest_rank(const PlanParallelTable* table, std::int64_t micro_batches,
                               const LearnerTask& task,
                               const std::function<MemoryDecision(std::vector<LearnerTask>)>& decide);

}  // namespace kformer::drivers
