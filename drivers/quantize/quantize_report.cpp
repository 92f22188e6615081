// SPDX-License-Identifier: MIT
#include "quantize/quantize_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <utility>

#include "kformer/memory/ledger.hpp"
#include "merge/logit_difference.hpp"

namespace kformer::drivers {

namespace {

using enum ColumnType;

Table& declare_tensors(ResultFile& file) {
  Table& t = file.table("tensors", "tensor", "tensor of the new checkpoint");
  t.dimension("axis", "axis of a tensor, the slowest first");
  t.column({"name", text, "1", "published name"});
  t.column({"shape", i64, "1", "extents", "axis", {}, 0});
  t.column({"format_before", text, "1", "type of the numbers or blocks in the source"});
  t.column({"format_after", text, "1", "type of the numbers or blocks in the new checkpoint"});
  t.column({"bytes_before", u64, "byte", "size in the source"});
  t.column({"bytes_after", u64, "byte", "size in the new checkpoint"});
  t.column({"quantized",
            flag,
            "1",
            "whether its numbers were made anew: quantised, or rounded to another type",
            "",
            {"no", "yes"}});
  t.column({"max_abs_err", f64, "1", "largest difference of a weight"});
  t.column(
      {"rel_rms_err", f64, "1", "rms of the differences over rms of the weights; NaN if all weights are 0"});
  t.column({"cosine", f64, "1", "cosine similarity of the weights before and after; NaN if either are all 0"});
  t.column({"zeros", f64, "1", "share of the weights that are 0 afterwards"});
  return t;
}

// The two that change least are the first to leave the rows of a table that is too wide, and names are long.
std::vector<ReportColumn> label_columns(bool with_errors) {
  return {{"from", "format_before", 0, true},
          {"to", "format_after", 0, true},
          {"tensor", "tensor", 0, true},
          {with_errors ? "" : "shape", "shape"},
          {with_errors ? "" : "before", "bytes_before"},
          {"after", "bytes_after"}};
}

std::vector<ReportValue> labels_of(const ReportLine& line) {
  return {text_value(to_string(line.format_before)),
          text_value(to_string(line.format_after)),
          text_value(line.name),
          text_value(fmt::format("[{}]", fmt::join(line.shape, ","))),
          bytes_value(static_cast<std::int64_t>(line.bytes_before)),
          bytes_value(static_cast<std::int64_t>(line.bytes_after))};
}

}  // namespace

ReportLine report_line(const TensorLayout& tensor, const TensorPlan& plan) {
  return {plan.name,
          tensor.shape,
          tensor.type,
          type_after(tensor, plan.format),
          tensor.bytes,
          bytes_after(tensor, plan.format),
          plan.format.has_value(),
          std::nullopt};
}

void ReportTotals::add(const ReportLine& line) {
  std::size_t of_tensor = 1;
  for (const std::size_t extent : line.shape) of_tensor *= extent;
  ++tensors;
  weights += of_tensor;
  bytes_before += line.bytes_before;
  bytes_after += line.bytes_after;
  if (!line.quantized) return;
  ++quantized;
  if (line.errors) errors += *line.errors;
}

Report tensor_table(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, ReportFormat format,
                    bool with_errors) {
  Report::Layout layout{.format = format, .labels = label_columns(with_errors), .points = {}, .results = {}};
  for (const TensorPlan& plan : plans)
    layout.points.push_back(labels_of(report_line(checkpoint.layout(plan.name), plan)));
  if (with_errors)
    layout.results = {{"max err", "max_abs_err", 8},
                      {"rel. rms", "rel_rms_err", 8},
                      {"cosine", "cosine", 8},
                      {"zeros", "zeros", 6}};
  return Report(std::move(layout));
}

std::vector<ReportValue> error_values(const TensorErrors& errors) {
  const double rms = errors.relative_rms(), cosine = errors.cosine(), zeros = errors.share_of_zeros();
  return {{fmt::format("{:.3g}", errors.largest), errors.largest},
          {fmt::format("{:.3g}", rms), rms},
          {fmt::format("{:.6f}", cosine), cosine},
          {fmt::format("{:.1f} %", 100 * zeros), zeros}};
}

std::string report_text(const ReportTotals& totals) {
  std::string text = fmt::format("{} of {} tensors converted: {} -> {}, {:.2f} bits per weight\n",
                                 totals.quantized, totals.tensors, format_bytes(totals.bytes_before),
                                 format_bytes(totals.bytes_after), totals.bits_per_weight());
  if (totals.errors.weights > 0)
    text += fmt::format("converted weights: largest error {:.3g}, relative rms error {:.3g}, cosine {:.6f}\n",
                        totals.errors.largest, totals.errors.relative_rms(), totals.errors.cosine());
  return text;
}

void declare_quantize_results(ResultFile& file) {
  add_paths(file, {}, {});
  QuantizeResults(file).add(ReportTotals());
  for (const char* group : {"merged", "merged_quantized"}) {
    write_difference(file, group, {});
    file.group(group).when("with --adapter");
  }
}

void add_paths(ResultFile& file, const std::string& input, const std::string& output) {
  file.root()
      .attribute("input", input, "path of the source")
      .attribute("output", output, "path of the new checkpoint");
}

QuantizeResults::QuantizeResults(ResultFile& file) : m_file(file), m_tensors(declare_tensors(file)) {}

void QuantizeResults::add(const ReportLine& line) {
  const TensorErrors errors = line.errors.value_or(TensorErrors());
  m_tensors.append({{"name", line.name},
                    {"shape", line.shape},
                    {"format_before", to_string(line.format_before)},
                    {"format_after", to_string(line.format_after)},
                    {"bytes_before", std::uint64_t(line.bytes_before)},
                    {"bytes_after", std::uint64_t(line.bytes_after)},
                    {"quantized", line.quantized},
                    {"max_abs_err", errors.largest},
                    {"rel_rms_err", errors.relative_rms()},
                    {"cosine", errors.cosine()},
                    {"zeros", errors.share_of_zeros()}});
}

void QuantizeResults::add(const ReportTotals& totals) {
  m_file.group("totals")
      .attribute("tensors", totals.tensors, "tensors of the new checkpoint")
      .attribute("quantized", totals.quantized, "those of them that were made anew")
      .attribute("weights", totals.weights, "numbers of all tensors")
      .attribute("bytes_before", totals.bytes_before, "size in the source")
      .attribute("bytes_after", totals.bytes_after, "size in the new checkpoint")
      .attribute("bits_per_weight", totals.bits_per_weight(), "bits of the new checkpoint over weights")
      .attribute("max_abs_err", totals.errors.largest, "largest difference of a weight")
      .attribute("rel_rms_err", totals.errors.relative_rms(), "rms of the differences over rms of the weights")
      .attribute("cosine", totals.errors.cosine(), "cosine similarity of the weights before and after")
      .attribute("zeros", totals.errors.share_of_zeros(), "share of the weights that are 0 afterwards");
}

}  // namespace kformer::drivers
