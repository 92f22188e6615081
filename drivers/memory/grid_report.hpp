// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/memory_planner.hpp"

namespace kformer::drivers {

/// The best grids of a training, with the table [parallel] of the first.
/// \param grids  of `MemoryPlanner::grids`
/// \param ranks  of the training
/// \param limit  bytes of a rank; nothing: no limit
std::string grid_report(const std::vector<GridForecast>& grids, std::int64_t ranks,
                        std::optional<std::size_t> limit);

}  // namespace kformer::drivers
