// SPDX-License-Identifier: MIT
#include "quantize/quantize_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string report_head(std::size_t name_width) {
  return fmt::format("{:<{}} {:>13} {:<5} {:<5} {:>11} {:>11} {:>9} {:>9} {:>9} {:>7}\n", "tensor", name_width,
                     "shape", "from", "to", "before", "after", "max error", "rel. rms", "cosine", "zeros");
}

std::string report_text(const ReportLine& line, std::size_t name_width) {
  std::string row = fmt::format("{:<{}} {:>13} {:<5} {:<5} {:>11} {:>11}", line.name, name_width,
                                fmt::format("[{}]", fmt::join(line.shape, ",")), to_string(line.format_before),
                                to_string(line.format_after), format_bytes(line.bytes_before),
                                format_bytes(line.bytes_after));
  if (line.errors)
    row += fmt::format(" {:>9.3g} {:>9.3g} {:>9.6f} {:>5.1f} %", line.errors->largest,
                       line.errors->relative_rms(), line.errors->cosine(), 100 * line.errors->share_of_zeros());
  return row + "\n";
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
