// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "app/report.hpp"
#include "layer/layer_case.hpp"
#include "sweep/measurement_tables.hpp"

namespace kformer::drivers {

/// The tables of a layer sweep in its result file; one call per finished case.
class LayerResults {
 public:
  /// Declares the tables; they have the rows of the run that the file resumes.
  LayerResults(ResultFile& file, const LlamaConfig& config);

  /// A row of /machine.
  void add_machine(const std::string& space, const measure::MachineLimits& limits) {
    m_measurements.add_machine(space, limits);
  }
  /// Cases of an interrupted run, which has recorded them.
  std::size_t finished() const { return m_cases.rows(); }
  /// What it measured in one of them.
  Measurement measurement(std::size_t i) const { return m_measurements.measurement(m_cases, i); }
  /// The rows of one case in every table; the file is checkpointed.
  void add_case(const CaseResult& result);

 private:
  ResultFile& m_file;
  LlamaConfig m_config;
  Table& m_cases;
  MeasurementTables m_measurements;
};

/// The columns of a report that tell cases apart.
std::vector<ReportColumn> layer_labels();
/// Their values.
std::vector<ReportValue> layer_point(const LayerCase& point);

}  // namespace kformer::drivers
