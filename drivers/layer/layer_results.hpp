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
  /// Declares the tables.
  LayerResults(ResultFile& file, const LlamaConfig& config);

  /// A row of /machine.
  void add_machine(const std::string& space, const measure::MachineLimits& limits) {
    m_measurements.add_machine(space, limits);
  }
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
