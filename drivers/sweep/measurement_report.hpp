// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "app/report.hpp"
#include "sweep/measurement.hpp"

namespace kformer::drivers {

/// The columns of a report that every measured case has: time, rate, memory, error, status.
std::vector<ReportColumn> measured_columns();
/// Their values.
std::vector<ReportValue> measured_values(const Measurement& measurement);

/// A duration with three digits: "80.1 us", "1.25 s"; "-" for none.
std::string shown_seconds(double seconds);

}  // namespace kformer::drivers
