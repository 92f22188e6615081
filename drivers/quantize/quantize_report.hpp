// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/report.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/result_file.hpp"
#include "quantize/plan.hpp"
#include "quantize/tensor_errors.hpp"

namespace kformer::drivers {

/// A tensor before and after.
struct ReportLine {
  std::string name;
  std::vector<std::size_t> shape;  ///< slowest extent first
  StoredType format_before, format_after;
  std::size_t bytes_before = 0, bytes_after = 0;
  bool quantized = false;              ///< or as it was stored
  std::optional<TensorErrors> errors;  ///< none where nothing is converted
};

/// The line of a tensor, without errors.
ReportLine report_line(const TensorLayout& tensor, const TensorPlan& plan);

/// Sums over all tensors.
struct ReportTotals {
  std::size_t tensors = 0, quantized = 0;  ///< how many
  std::size_t weights = 0;                 ///< of all tensors
  std::size_t bytes_before = 0, bytes_after = 0;
  TensorErrors errors;  ///< of the tensors that were quantised

  /// Adds a tensor.
  void add(const ReportLine& line);
  double bits_per_weight() const {
    return 8.0 * static_cast<double>(bytes_after) / static_cast<double>(weights);
  }
};

/// The table of the tensors of a new checkpoint, to be printed row by row.
/// \param with_errors whether there are results, `error_values`; without them people see shapes and sizes before, too
Report tensor_table(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, ReportFormat format,
                    bool with_errors);

/// The errors of a tensor as results of its row.
std::vector<ReportValue> error_values(const TensorErrors& errors);

/// What follows the table.
std::string report_text(const ReportTotals& totals);

/// The kind of the result file.
inline constexpr const char* quantize_kind = "quantize";

/// Declares everything that a result file may have besides its provenance.
void declare_quantize_results(ResultFile& file);

/// Sets the attributes of the root that say which checkpoints it is about.
void add_paths(ResultFile& file, const std::string& input, const std::string& output);

/// The report in a result file: /tensors and /totals.
class QuantizeResults {
 public:
  /// Declares the table.
  explicit QuantizeResults(ResultFile& file);
  /// Adds a tensor.
  void add(const ReportLine& line);
  /// Adds the sums.
  void add(const ReportTotals& totals);

 private:
  ResultFile& m_file;
  Table& m_tensors;
};

}  // namespace kformer::drivers
