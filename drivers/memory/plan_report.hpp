// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "app/report.hpp"
#include "memory/plan.hpp"

namespace kformer::drivers {

/// The table of a plan: every class of memory, the total, what there is, and what that leaves or lacks.
/// \param colours whether values have their colours
/// \param wraps   whether messages are wrapped
std::string plan_report(const std::vector<PlannedCase>& cases, ReportFormat format, bool colours = false,
                        bool wraps = false);

}  // namespace kformer::drivers
