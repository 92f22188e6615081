// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/io/result_file.hpp"
#include "measure/machine.hpp"
#include "measure/profiler.hpp"
#include "sweep/measurement.hpp"
#include "sweep/record_table.hpp"

/// \file
/// The tables that result files of all sweeps have.

namespace kformer::drivers {

/// Declares a table whose rows belong to cases: its first column is the row in /cases.
Table& declare_table_of_cases(ResultFile& file, const std::string& name, const std::string& dimension,
                              const std::string& description);

/// What column `name` has in a row, all items.
template <class T>
std::vector<T> items(const Table& table, const char* column, std::size_t row) {
  return std::get<std::vector<T>>(table.value(column, row).items());
}
/// The item of a column without a second dimension.
template <class T>
T item(const Table& table, const char* column, std::size_t row) {
  return items<T>(table, column, row).front();
}
/// Drops the last rows: those whose `column`, the row of another table, is `from` or more.
void drop_rows(Table& table, const char* column, std::size_t from);

/// Declares in /cases the columns before those of the kind: what ran, how and where.
void declare_leading_columns(Table& cases);
/// Declares in /cases the columns after those of the kind: time, work, memory, errors, status.
void declare_measured_columns(Table& cases);

/// Declares in /cases, of a kind without samples, what disturbed a case and whether that decides its times.
/// \param subject what a case is
void declare_disturbances(Table& cases, const std::string& subject);
/// Its cells.
std::vector<Table::Cell> disturbance_cells(const Measurement& measurement);

/// Sets the load of the host before the run, in /provenance.
void declare_load(ResultFile& file, double load);

/// Declares in /cases the peak of the ledger, its forecast, and the scratch memory beside them.
void declare_peak_columns(Table& cases);
/// Declares in /cases the memory and the kernels of the check.
void declare_check_columns(Table& cases);
/// Declares in /cases the kernels that ran, and how `subject` ended.
void declare_outcome_columns(Table& cases, const std::string& subject);
/// The cells of `declare_peak_columns` and `declare_outcome_columns`.
/// \param space execution space of the case
std::vector<Table::Cell> outcome_cells(const Measurement& measurement, const std::string& space);
/// What these cells say.
Measurement outcome_of(const Table& cases, std::size_t row);
/// The samples of a row with the columns `time` and `inner_iterations`.
measure::Samples samples_of(const Table& cases, std::size_t row);

/// The cells of `declare_measured_columns`.
std::vector<Table::Cell> measured_cells(const Measurement& measurement, const std::string& space);

/// The shortest time that the limits of the case allow, over the time it took; NaN if it was not timed.
double share_of_limit(const Measurement& measurement);

/// A row of /regions.
struct RegionRow : measure::Profiler::RegionTime {
  std::int32_t row_of_case = 0;  ///< row in /cases
};

/// A row of /kernels.
struct KernelRow : measure::Profiler::KernelTime {
  std::int32_t row_of_case = 0;  ///< row in /cases
  std::string execution_space;   ///< of the case
};

/// The groups /machine, /memory, /regions and /kernels.
class MeasurementTables {
 public:
  /// Declares the tables.
  explicit MeasurementTables(ResultFile& file);

  /// Whether there is a row of /machine.
  bool has_machine() const { return m_machine.rows() > 0; }
  /// A row of /machine.
  void add_machine(const std::string& space, const measure::MachineLimits& limits);
  /// What the rows of a case say; `cases` has `declare_measured_columns`. Not its profile.
  Measurement measurement(const Table& cases, std::size_t row) const;
  /// Drops what later cases than the first `cases` have.
  void keep_cases(std::size_t cases);
  /// The rows of the next case.
  void add_case(const Measurement& measurement, const std::string& execution_space);

 private:
  Table& m_classes;
  Table& m_spaces;
  Table& m_devices;
  RecordTable<RegionRow> m_regions;
  RecordTable<KernelRow> m_kernels;
  Table& m_machine;
};

}  // namespace kformer::drivers
