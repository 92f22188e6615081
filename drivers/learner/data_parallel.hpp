// SPDX-License-Identifier: MIT
#pragma once

#include "decks/train/train_deck.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "learner/learner.hpp"

namespace kformer::drivers {

/// The ranks of a training as a grid.
/// \param world all that were started; others than `table` has can only be forecast, the first of them
/// \param table none: one rank
RankGrid grid_of(const std::shared_ptr<Communicator>& world, const PlanParallelTable* table);

/// Shares a training among ranks: its steps, its model, its checkpoints, and what ZeRO divides.
/// \param grid          the ranks
/// \param table         how
/// \param micro_batches of a step, of all ranks
/// \param task          of this rank
void share_among(const RankGrid& grid, const PlanParallelTable& table, std::int64_t micro_batches,
                 LearnerTask& task);

}  // namespace kformer::drivers
