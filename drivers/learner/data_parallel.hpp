// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "decks/train/train_deck.hpp"
#include "learner/learner.hpp"

namespace kformer::drivers {

/// Shares a training among ranks: its steps, its checkpoints, and what ZeRO divides.
/// \param ranks         all of them; a `LoneCommunicator` to forecast memory
/// \param table         how
/// \param micro_batches of a step, of all ranks
/// \param task          of this rank
void share_among(const std::shared_ptr<Communicator>& ranks, const PlanParallelTable& table,
                 std::int64_t micro_batches, LearnerTask& task);

}  // namespace kformer::drivers
