// SPDX-License-Identifier: MIT
#include "attention/attention_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace kformer::drivers {

namespace {

using enum ColumnType;

void declare_shape_columns(Table& t, const char* q_len) {
  t.column({"window", i64, "1", "keys at this distance or more are hidden, 0 = none"});
  t.column({"num_attention_heads", i64, "1", "query heads"});
  t.column({"num_key_value_heads", i64, "1", "key and value heads"});
  t.column({"head_dim", i64, "1", "features per query and key"});
  t.column({"v_head_dim", i64, "1", "features of a value"});
  t.column({"batch", i64, "1", "sequences"});
  t.column({"q_len", i64, "1", q_len});
}

std::vector<Table::Cell> shape_cells(const AttentionCase& p, std::int64_t q_len) {
  return {{"window", p.window},
          {"num_attention_heads", p.num_attention_heads},
          {"num_key_value_heads", p.num_key_value_heads},
          {"head_dim", p.head_dim},
          {"v_head_dim", p.v_head_dim},
          {"batch", p.batch},
          {"q_len", q_len}};
}

Table& declare_cases(ResultFile& file) {
  Table& t = file.table("cases", "case", "case of the sweep, in running order");
  declare_leading_columns(t);
  declare_shape_columns(t, "queries of a sequence");
  t.column({"seq_len", i64, "1", "keys per sequence"});
  declare_measured_columns(t);
  t.column(finite_if_ok({"share_of_fma_peak", f64, "1", "flop_rate over flop_rate_limit"}));
  t.column({"mean_abs_err", f64, "1", "largest mean error of any result against the f64 reference"});
  t.attribute(
      "flops_formula",
      "forward 2*heads*(head_dim + v_head_dim) per query-key pair that sees each other; these are batch * "
      "q_len * seq_len, half of that where a causal mask without window cuts a square, and counted one by "
      "one with a window, or with a causal mask where q_len differs from seq_len; backward 2.5 times that",
      "what flops counts");
  return t;
}

}  // namespace

Table& declare_comparison(ResultFile& file, const std::vector<std::int64_t>& lengths) {
  Table& t = file.table("comparison", "configuration", "cases that differ only in seq_len and impl");
  t.when("where a length was timed both ways");
  t.numbered_dimension("seq_len", "keys per sequence", lengths);
  t.column({"dtype", text, "1", "storage type"});
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  t.column({"direction", flag, "1", "pass that was timed", "", {"forward", "backward"}});
  t.column({"causal", flag, "1", "whether later keys are hidden", "", {"no", "yes"}});
  declare_shape_columns(t, "queries of a sequence, 0 = seq_len");
  t.column({"time_standard", f64, "s", "median time of standard attention", "seq_len"});
  t.column({"time_flash", f64, "s", "median time of flash attention", "seq_len"});
  t.column({"speedup", f64, "1", "time_standard / time_flash; NaN where noise decides one of them", "seq_len"});
  t.column({"memory_ratio", f64, "1", "peak of activations and workspace, flash over standard", "seq_len"});
  t.column({.name = "crossover_seq_len",
            .type = i64,
            .long_name = "smallest seq_len from which flash is faster at all longer lengths timed both ways "
                         "without noise",
            .fill = -1});
  return t;
}

AttentionResults::AttentionResults(ResultFile& file)
    : m_file(file), m_cases(declare_cases(file)), m_measurements(file) {
  file.restore();
}

void AttentionResults::add_case(const AttentionResult& result) {
  const AttentionCase& p = result.point;
  const double median = result.samples.quantile(0.5);
  std::vector<Table::Cell> cells{{"op", "attention"},
                                 {"impl", name_of(p.impl)},
                                 {"dtype", name_of(p.dtype)},
                                 {"execution_space", p.execution_space},
                                 {"direction", name_of(p.direction)},
                                 {"causal", p.causal},
                                 {"seq_len", p.seq_len},
                                 {"mean_abs_err", result.mean_abs_err}};
  if (median > 0) cells.push_back({"share_of_fma_peak", result.flops / median / result.limits.flop_rate});
  std::ranges::move(shape_cells(p, query_length(p)), std::back_inserter(cells));
  std::ranges::move(measured_cells(result, p.execution_space), std::back_inserter(cells));
  m_cases.append(cells);
  m_measurements.add_case(result, p.execution_space);
  m_file.checkpoint();
}

void AttentionResults::add_comparison(const Comparison& comparison) {
  const auto lengths = comparison.lengths();
  Table& t = declare_comparison(m_file, lengths);
  for (const ComparedConfiguration& c : comparison.configurations()) {
    std::vector<double> standard, flash, speedup, memory;
    for (const std::int64_t seq_len : lengths) {
      const auto found = c.lengths.find(seq_len);
      const ComparedLength length = found == c.lengths.end() ? ComparedLength() : found->second;
      standard.push_back(length.seconds[0]);
      flash.push_back(length.seconds[1]);
      speedup.push_back(length.speedup());
      memory.push_back(length.memory_ratio());
    }
    const AttentionCase& p = c.point;
    std::vector<Table::Cell> cells{{"dtype", name_of(p.dtype)},
                                   {"execution_space", p.execution_space},
                                   {"direction", name_of(p.direction)},
                                   {"causal", p.causal},
                                   {"time_standard", standard},
                                   {"time_flash", flash},
                                   {"speedup", speedup},
                                   {"memory_ratio", memory}};
    if (const auto from = c.crossover()) cells.push_back({"crossover_seq_len", *from});
    std::ranges::move(shape_cells(p, p.q_len), std::back_inserter(cells));
    t.append(cells);
  }
}

std::string configuration_text(const AttentionCase& p) {
  std::string text =
      fmt::format("heads {}/{} dim {}", p.num_attention_heads, p.num_key_value_heads, p.head_dim);
  if (p.v_head_dim != p.head_dim) text += fmt::format("/{}", p.v_head_dim);
  text += fmt::format(" batch {} {}", p.batch, p.causal ? "causal" : "full");
  if (p.window > 0) text += fmt::format(" window {}", p.window);
  if (p.q_len > 0) text += fmt::format(" q_len {}", p.q_len);
  return text;
}

std::vector<ReportColumn> attention_labels() {
  return {{"space", "execution_space", 0, true},
          {"dtype", "dtype", 0, true},
          {"direction", "direction", 0, true},
          {"mask", "mask", 0, true},
          {"window", "window"},
          {"heads", ""},
          {"", "num_attention_heads"},
          {"", "num_key_value_heads"},
          {"head_dim", "head_dim"},
          {"v_head_dim", "v_head_dim"},
          {"batch", "batch"},
          {"q_len", "q_len"},
          {"seq_len", "seq_len"},
          {"attention", "impl", 0, true}};
}

std::vector<ReportValue> attention_point(const AttentionCase& p) {
  return {text_value(p.execution_space),
          text_value(name_of(p.dtype)),
          text_value(name_of(p.direction)),
          text_value(p.causal ? "causal" : "full"),
          count_value(p.window),
          text_value(fmt::format("{}/{}", p.num_attention_heads, p.num_key_value_heads)),
          count_value(p.num_attention_heads),
          count_value(p.num_key_value_heads),
          count_value(p.head_dim),
          count_value(p.v_head_dim),
          count_value(p.batch),
          count_value(query_length(p)),
          count_value(p.seq_len),
          text_value(name_of(p.impl))};
}

namespace {

std::string crossover_text(const ComparedConfiguration& c) {
  if (const auto from = c.crossover()) return fmt::format("faster from seq_len {} on", *from);
  const bool judged =
      std::ranges::any_of(c.lengths, [](const auto& l) { return l.second.complete() && !l.second.noise; });
  return judged ? "slower at the longest length measured" : "not compared: noise decides the times";
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
  std::string text = "flash against standard attention:\n";
  for (const ComparedConfiguration& c : comparison.configurations()) {
    text += fmt::format("  {} {} {} {}: {}\n", c.point.execution_space, name_of(c.point.dtype),
                        name_of(c.point.direction), configuration_text(c.point), crossover_text(c));
    for (const auto& [seq_len, length] : c.lengths) {
      if (!length.complete()) continue;
      const std::string speed =
          length.noise ? "no ratio, noise decides" : fmt::format("{:6.2f} x the speed", length.speedup());
      text += fmt::format("    seq_len {:>7}: {}, memory {:+.1f} %\n", seq_len, speed,
                          100 * (length.memory_ratio() - 1));
    }
  }
  return text;
}

}  // namespace kformer::drivers
