// SPDX-License-Identifier: MIT
#include "layer/layer_results.hpp"

#include <iterator>

namespace kformer::drivers {

namespace {

using enum ColumnType;

Table& declare_cases(ResultFile& file) {
  Table& t = file.table("cases", "case", "case of the sweep, in running order");
  declare_leading_columns(t);
  for (const char* name : {"batch", "seq_len", "num_attention_heads", "num_key_value_heads", "head_dim",
                           "hidden_size", "intermediate_size", "window"})
    t.column({name, i64, "1", std::string(name) + " of the case"});
  declare_measured_columns(t);
  t.column(finite({"loss_scale", f64, "1", "factor on the gradient of the output, at the end"}));
  t.column({"gradient_norm", f64, "1",
            "norm of all parameter gradients in the last step, without the loss "
            "scale"});
  t.column({"skipped_steps", i64, "1", "steps skipped because gradients were not finite"});
  t.attribute("flops_formula",
              "2 per multiply-add of the linear layers; attention 4*batch*heads*head_dim per visible query-key "
              "pair with half "
              "the square when causal; backward 2 times linear and 2.5 times attention",
              "what flops counts");
  return t;
}

}  // namespace

LayerResults::LayerResults(ResultFile& file, const LlamaConfig& config)
    : m_file(file), m_config(config), m_cases(declare_cases(file)), m_measurements(file) {
  file.restore();
}

void LayerResults::add_case(const CaseResult& result) {
  const LayerCase& p = result.point;
  std::vector<Table::Cell> cells{{"op", "layer"},
                                 {"impl", name_of(p.impl)},
                                 {"dtype", name_of(p.dtype)},
                                 {"execution_space", p.execution_space},
                                 {"direction", name_of(p.direction)},
                                 {"causal", true},
                                 {"batch", p.batch},
                                 {"seq_len", p.seq_len},
                                 {"num_attention_heads", m_config.num_attention_heads},
                                 {"num_key_value_heads", m_config.num_key_value_heads},
                                 {"head_dim", m_config.head_dim},
                                 {"hidden_size", m_config.hidden_size},
                                 {"intermediate_size", m_config.intermediate_size},
                                 {"window", m_config.sliding_window}};
  std::ranges::move(measured_cells(result, p.execution_space), std::back_inserter(cells));
  cells.insert(cells.end(), {{"loss_scale", result.loss_scale},
                             {"gradient_norm", result.gradient_norm},
                             {"skipped_steps", result.skipped_steps}});
  m_cases.append(cells);
  m_measurements.add_case(result, p.execution_space);
  m_file.checkpoint();
}

std::vector<ReportColumn> layer_labels() {
  return {{"space", "execution_space", 0, true},
          {"dtype", "dtype", 0, true},
          {"direction", "direction", 0, true},
          {"batch", "batch"},
          {"seq_len", "seq_len"},
          {"attention", "impl", 0, true}};
}

std::vector<ReportValue> layer_point(const LayerCase& p) {
  return {text_value(p.execution_space), text_value(name_of(p.dtype)), text_value(name_of(p.direction)),
          count_value(p.batch),          count_value(p.seq_len),       text_value(name_of(p.impl))};
}

}  // namespace kformer::drivers
