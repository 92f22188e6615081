// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/report.hpp"
#include "memory/memory_planner.hpp"
#include "sweep/measurement_tables.hpp"

namespace kformer::drivers {

/// The result of a case.
struct PlannedCase {
  MemoryCase point;                      ///< the case
  MemoryForecast forecast;               ///< what it takes
  std::optional<std::size_t> available;  ///< bytes it may have; empty if the system does not report them
  std::int64_t largest_context = -1;     ///< largest context that fits; −1 if unknown
  std::int64_t largest_batch = -1;       ///< largest batch that fits; −1 if unknown
  std::string unsupported;               ///< why it cannot run, if so

  /// Whether it fits; true if unknown.
  bool fits() const { return !available || forecast.bytes_in_space <= *available; }
};

/// Available bytes on an execution space.
using MemoryThereIs = std::function<std::optional<std::size_t>(const std::string& space)>;

/// The largest batch that a plan looks for.
inline constexpr std::int64_t longest_batch = 1 << 16;

/// Forecasts a case, and finds by bisection the largest context and the largest batch that fit.
PlannedCase planned(MemoryPlanner& planner, const MemoryCase& point, std::optional<std::size_t> available);

/// The tables of a plan in its result file.
class PlanResults {
 public:
  /// Declares the tables.
  PlanResults(ResultFile& file, const PlanTable& plan);
  /// The rows of one case.
  void add(const PlannedCase& c);
  /// The grids of the last case.
  void add(const std::vector<GridForecast>& grids, std::optional<std::size_t> limit);

 private:
  PlanTable m_plan;
  Table &m_cases, &m_grids;
  std::int64_t m_planned = 0;  // cases so far
  MeasurementTables m_measurements;
};

/// Why a plan should stop, if it should; called between cases.
using StopCheck = std::function<std::optional<std::string>()>;

/// Plans the cases until the last or a request to stop, writes and prints them, and closes the file.
/// \returns the exit code
int run_plan(MemoryPlanner& planner, const MemoryPlanDeck& deck, const std::vector<MemoryCase>& cases,
             const MemoryThereIs& there_is, const StopCheck& stop, ResultFile& file,
             ReportFormat format = ReportFormat::table);

}  // namespace kformer::drivers
