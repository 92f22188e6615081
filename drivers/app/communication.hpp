// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kformer/parallel/communication_log.hpp"
#include "kformer/parallel/rank_grid.hpp"

namespace kformer::drivers {

/// The communicators of this rank in a grid, each once.
std::vector<const Communicator*> communicators_of(const RankGrid& grid);

/// What this rank has sent, over all communicators of a grid.
std::vector<CommunicationCount> communication_of(const RankGrid& grid);

}  // namespace kformer::drivers
