// SPDX-License-Identifier: MIT
#pragma once

#include "app/report.hpp"
#include "kformer/io/result_file.hpp"
#include "scaling/grid_result.hpp"
#include "sweep/record_table.hpp"

namespace kformer::drivers {

/// Calls, with the row in /cases.
struct CallRow : RankCalls {
  std::int32_t row_of_case = 0;  ///< row in /cases
  double share = 0;              ///< of the time of the case
};

/// A link of a case.
struct LinkRow : Link {
  std::int32_t row_of_case = 0;  ///< row in /cases
  std::string axis;              ///< of the grid
  std::int64_t ranks = 0;        ///< along it
};

/// How fast a grid is beside the first one: tokens per second and rank. NaN where either has no time.
double efficiency(const GridResult& first, double first_seconds, const GridResult& result, double seconds);

/// The tables of a scaling study in its result file.
class ScalingResults {
 public:
  /// Declares the tables; they have the grids that ran in the run that the file resumes.
  explicit ScalingResults(ResultFile& file);
  /// Grids in the file that were to run.
  std::size_t finished() const { return m_cases.rows(); }
  /// What the report needs of one of them.
  GridResult result(std::size_t row, const PlanParallelTable& grid) const;
  /// The rows of a grid that was to run.
  void add(const ScalingDeck& deck, const std::string& space, const GridResult& first,
           const GridResult& result);
  /// The row of a grid that was simulated on the machine of the deck.
  void add_simulated(const GridResult& first, const GridResult& result);

 private:
  void add_simulation(const GridResult& first, const GridResult& result, std::int32_t row_of_case);

  Table& m_cases;
  RecordTable<CallRow> m_communication;
  Table& m_ranks;
  Table& m_simulated;
  RecordTable<LinkRow> m_links;
  std::int32_t m_next = 0;
};

/// The columns of the report, and the values of a grid; those of simulations bear a ~.
std::vector<ReportColumn> scaling_columns();
/// The values of a grid.
std::vector<ReportValue> scaling_values(const GridResult& first, const GridResult& result, bool runs);

}  // namespace kformer::drivers
