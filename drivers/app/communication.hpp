// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kformer/parallel/communication_log.hpp"
#include "kformer/parallel/rank_grid.hpp"

namespace kformer::drivers {

/// What this rank has sent, over all communicators of a grid.
std::vector<CommunicationCount> communication_of(const RankGrid& grid);

}  // namespace kformer::drivers
