// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "app/report.hpp"
#include "kformer/io/result_file.hpp"
#include "measure/machine.hpp"
#include "sweep/measurement.hpp"

namespace kformer::drivers {

/// The cases of a sweep, as the main loop uses them.
struct CaseLoop {
  std::vector<std::string> spaces;  ///< of every case, in running order
  /// One line on case `i`, for the progress on standard error.
  std::function<std::string(std::size_t i)> name;
  /// Called once per space, before the first case.
  std::function<void(const std::string& space, const measure::MachineLimits& limits)> add_machine;
  std::size_t scratch_per_thread = 0;            ///< of the kernels of all cases
  ReportFormat format = ReportFormat::table;     ///< of the table on standard output
  std::vector<ReportColumn> labels;              ///< its columns before those of every measured case
  std::vector<std::vector<ReportValue>> points;  ///< and their values in every case
  /// Runs case `i`; `stop` is called between samples. The result lives until the next call.
  /// \throws OutOfMemory if that ends the run
  std::function<const Measurement&(std::size_t i, const std::function<bool()>& stop)> run;
  /// Records case `i`, the last that ran.
  std::function<void(std::size_t i)> keep;
  std::size_t finished = 0;  ///< cases that an interrupted run has recorded
  /// What it measured in one of them. The result lives until the next call.
  std::function<const Measurement&(std::size_t i)> recall;
  /// Called after the last case, also that of a run that was stopped, before the file is closed; prints to `log`.
  std::function<void(std::FILE* log)> finish;
};

/// Measures the machine, runs the cases until the last, a request to stop, or a lack of memory, and closes
/// the file.
/// \returns the exit code
int run_cases(const CaseLoop& loop, const RunTable& run, const ProfileTable& profile, ResultFile& file);

}  // namespace kformer::drivers
