// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "memory/memory_planner.hpp"
#include "sweep/measurement_tables.hpp"

namespace kformer::drivers {

/// What is known of a case in the end.
struct PlannedCase {
  MemoryCase point;                      ///< the case
  MemoryForecast forecast;               ///< what it takes
  std::optional<std::size_t> available;  ///< what there is; nothing if the system does not say
  std::int64_t largest_context = -1;  ///< that fits, at most that of the model or of the case; −1 if not known
  std::string unsupported;            ///< why it cannot run at all, if so

  /// Whether it fits; yes where nobody knows.
  bool fits() const { return !available || forecast.total <= *available; }
};

/// Bytes that there are on an execution space.
using MemoryThereIs = std::function<std::optional<std::size_t>(const std::string& space)>;

/// Forecasts a case, and finds the largest context that fits by bisection.
PlannedCase planned(MemoryPlanner& planner, const MemoryCase& point, std::optional<std::size_t> available);

/// The tables of a plan in its result file.
class PlanResults {
 public:
  /// Declares the tables.
  PlanResults(ResultFile& file, const PlanTable& plan);
  /// The rows of one case.
  void add(const PlannedCase& c);

 private:
  PlanTable m_plan;
  Table& m_cases;
  MeasurementTables m_measurements;
};

/// The table on standard output: its head, and a case.
std::string plan_head();
/// \copydoc plan_head
std::string plan_row(const PlannedCase& c);

/// Plans all cases, prints and writes them, and closes the file.
/// \returns the exit code
int run_plan(MemoryPlanner& planner, const MemoryPlanDeck& deck, const std::vector<MemoryCase>& cases,
             const MemoryThereIs& there_is, ResultFile& file);

}  // namespace kformer::drivers
