// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "app/report.hpp"
#include "attention/comparison.hpp"
#include "sweep/measurement_tables.hpp"

namespace kformer::drivers {

/// The tables of a comparison in its result file.
class AttentionResults {
 public:
  /// Declares the tables; they have the rows of the run that the file resumes.
  explicit AttentionResults(ResultFile& file);

  /// A row of /machine.
  void add_machine(const std::string& space, const measure::MachineLimits& limits) {
    m_measurements.add_machine(space, limits);
  }
  /// Cases of an interrupted run, which has recorded them.
  std::size_t finished() const { return m_cases.rows(); }
  /// What it measured in one of them.
  Measurement measurement(std::size_t i) const { return m_measurements.measurement(m_cases, i); }
  /// The rows of one case in every table; the file is checkpointed.
  void add_case(const AttentionResult& result);
  /// The table /comparison.
  void add_comparison(const Comparison& comparison);

 private:
  ResultFile& m_file;
  Table& m_cases;
  MeasurementTables m_measurements;
};

/// Declares the table /comparison of cases with these sequence lengths.
Table& declare_comparison(ResultFile& file, const std::vector<std::int64_t>& lengths);

/// The columns of a report that tell cases apart.
std::vector<ReportColumn> attention_labels();
/// Their values.
std::vector<ReportValue> attention_point(const AttentionCase& point);
/// The table of speed-ups on standard output.
std::string comparison_text(const Comparison& comparison);

/// "heads 32/8 dim 128 batch 1 causal window 128": what a case computes, except for the sequence length.
std::string configuration_text(const AttentionCase& point);

}  // namespace kformer::drivers
