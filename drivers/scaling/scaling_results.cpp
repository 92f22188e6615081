// SPDX-License-Identifier: MIT
#include "scaling/scaling_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "sweep/measurement_tables.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {

namespace {

using enum ColumnType;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double median_of(const GridResult& result) {
  return result.measurement.samples.seconds.empty() ? nan : result.measurement.samples.quantile(0.5);
}

double simulated_seconds(const GridResult& result) {
  return result.simulation ? result.simulation->seconds : nan;
}

void declare_grid(Table& t) {
  t.column({"grid", text, "1", "ranks along data x context x tensor, and pipeline where there are several"});
  t.column({"data", i64, "1", "ranks that share the sequences of a step"});
  t.column({"context", i64, "1", "ranks that divide the tokens of a sequence"});
  t.column({"tensor", i64, "1", "ranks that divide the model"});
  t.column({"pipeline", i64, "1", "ranks that divide the layers"});
  t.column({"ranks", i64, "1", "data x context x tensor x pipeline"});
}

std::vector<Table::Cell> grid_cells(const PlanParallelTable& grid) {
  return {{"grid", grid_name(grid)}, {"data", grid.data},         {"context", grid.context},
          {"tensor", grid.tensor},   {"pipeline", grid.pipeline}, {"ranks", grid.ranks()}};
}

Table& declare_cases(ResultFile& file) {
  Table& t = file.table("cases", "case", "grid of ranks that ran");
  t.column({"op", text, "1", "what was run"});
  declare_grid(t);
  t.column({"zero", i64, "1", "stage of ZeRO"});
  t.column({"sequence", i32, "1", "1: ranks along tensor divide the tokens of states, too"});
  constexpr auto exchanges = names_of<ContextExchange>;
  t.column({"context_exchange",
            flag,
            "1",
            "how keys and values reach other ranks along context",
            "",
            {exchanges.begin(), exchanges.end()}});
  constexpr auto schedules = names_of<PipelineSchedule>;
  t.column({"schedule", flag, "1", "order in which stages work", "", {schedules.begin(), schedules.end()}});
  t.column({"parts", i64, "1", "of the model on each stage"});
  constexpr auto kinds = names_of<ScalingKind>;
  t.column({"scaling", flag, "1", "how work depends on the grid", "", {kinds.begin(), kinds.end()}});
  t.column({"dtype", text, "1", "storage type of weights and activations"});
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  t.column({"tokens", i64, "1", "tokens of a call, of all ranks"});
  t.dimension("repeat", "timing sample of a case");
  t.column({"time", f64, "s", "seconds per call of the slowest rank, every sample", "repeat"});
  t.column({"inner_iterations", i64, "1", "calls in one sample"});
  t.column(finite_if_ok({"time_min", f64, "s", "least of the samples"}));
  t.column(finite_if_ok({"time_median", f64, "s", "median of the samples"}));
  t.column({"noisy", flag, "1", "whether noise decides the time", "", {"no", "yes"}});
  t.attribute(
      "noisy_formula",
      "the samples from the 10th to the 90th percentile span more than 0.25 of their median, or there is one "
      "alone, shorter than 0.1 s",
      "what noisy means");
  t.column(finite_if_ok({"token_rate", f64, "1/s", "tokens over the median time"}));
  t.column(
      {"efficiency", f64, "1", "token_rate of a rank over that of the first grid; NaN if that did not run"});
  t.column({"communication_time", f64, "s",
            "mean time of a rank in exchanges in a call, with the time in which it waited for other ranks"});
  t.column({"communication_share", f64, "1", "of the time of the calls in which it was counted"});
  t.column({"bubble_share", f64, "1",
            "of the same time: in which a rank waits for other stages, mean of all; NaN: one stage"});
  declare_peak_columns(t);
  declare_outcome_columns(t, "grid");
  return t;
}

RecordTable<CallRow> declare_communication(ResultFile& file) {
  Table& t = file.table("communication", "call", "what ranks sent to each other while they were timed");
  t.when("with several ranks");
  return {t,
          {{{"case", i32, "1", "row in /cases"}, &CallRow::row_of_case},
           {{"rank", i64, "1", "who sent"}, &CallRow::rank},
           {{"operation", text, "1", "collective operation"}, &CallRow::operation},
           {{"region", text, "1", "what for"}, &CallRow::region},
           {{"calls", u64, "1", "in all samples and their warm-up"}, &CallRow::calls},
           {{"bytes", u64, "byte", "sent to other ranks"}, &CallRow::bytes},
           {{"expected_bytes", u64, "byte", "the same by the formulae of the documentation"},
            &CallRow::expected_bytes},
           {finite({"time", f64, "s", "in exchanges, with the time in which it waited for other ranks"}),
            &CallRow::seconds},
           {{"share", f64, "1", "of the time of the rank in these calls"}, &CallRow::share}}};
}

Table& declare_ranks(ResultFile& file) {
  Table& t = declare_table_of_cases(file, "memory/ranks", "entry", "memory of a rank");
  t.when("where a grid ran");
  t.column({"rank", i64, "1", "which one"});
  t.column({"predicted_bytes", u64, "byte", "the most that was forecast"});
  t.column({"peak_bytes", u64, "byte", "the most that was booked"});
  return t;
}

Table& declare_simulated(ResultFile& file) {
  Table& t = file.table("simulation/grids", "simulation", "step that was simulated, not measured");
  t.when("with what = \"step\"");
  declare_grid(t);
  t.column({"case", i32, "1", "row in /cases of the grid that ran; −1: on the machine of the deck alone"});
  t.column(finite({"simulated_time", f64, "s", "of a step, by the simulation"}));
  t.column({"measured_time", f64, "s", "median of the grid that ran; NaN: none did"});
  t.column({"relative_error", f64, "1", "(simulated - measured) / measured; NaN: not measured"});
  t.column({"efficiency", f64, "1", "tokens per simulated second and rank, over those of the first grid"});
  t.column(finite({"computed_share", f64, "1", "of the simulated time in which the first rank computes"}));
  t.column(
      finite({"bubble_share", f64, "1",
              "in which equal stages wait for each other, by the formula, with the times of layers below"}));
  t.column({"predicted_bytes", u64, "byte", "memory of the first rank, by counting"});
  t.column(finite({"cores", f64, "1", "what ranks share, in units of a rank's threads; 0: each has its own"}));
  t.column(finite({"layer_forward", f64, "s", "input: forward of a layer and micro-batch"}));
  t.column(finite({"layer_backward", f64, "s", "input: backward of a layer and micro-batch"}));
  t.column(finite(
      {"layer_weights", f64, "s", "input: of layer_backward, if gradients of weights are work of their own"}));
  t.column(finite({"ends", f64, "s", "input: embedding, head and loss of a micro-batch"}));
  t.column(finite({"update", f64, "s", "input: norm and optimizer, of one element of a weight of the stage"}));
  t.attribute("simulated", std::int8_t(1), "1: no time of this table but measured_time was measured");
  return t;
}

RecordTable<LinkRow> declare_links(ResultFile& file) {
  Table& t =
      file.table("simulation/links", "link", "input of simulations: exchanges among the ranks along an axis");
  t.when("with what = \"step\" and several ranks");
  return {t,
          {{{"simulation", i32, "1", "row in /simulation/grids"}, &LinkRow::row_of_case},
           {{"axis", text, "1",
             "of the grid; replicas: data x context; stages: all of a pipeline, ends: the first and the last; "
             "neighbours: messages from one to the next"},
            &LinkRow::axis},
           {{"ranks", i64, "1", "along it"}, &LinkRow::ranks},
           {finite({"latency", f64, "s", "of an exchange"}), &LinkRow::latency},
           {finite({"seconds_per_byte", f64, "s/byte", "that a rank sends"}), &LinkRow::seconds_per_byte},
           {finite({"seconds_per_summed_byte", f64, "s/byte", "the same where what arrives is summed"}),
            &LinkRow::seconds_per_summed}}};
}

}  // namespace

double efficiency(const GridResult& first, double first_seconds, const GridResult& result, double seconds) {
  const auto rate = [](const GridResult& of, double time) {
    return static_cast<double>(of.tokens) / time / static_cast<double>(of.grid.ranks());
  };
  return rate(result, seconds) / rate(first, first_seconds);
}

ScalingResults::ScalingResults(ResultFile& file)
    : m_cases(declare_cases(file)),
      m_communication(declare_communication(file)),
      m_ranks(declare_ranks(file)),
      m_simulated(declare_simulated(file)),
      m_links(declare_links(file)) {
  file.restore();
  m_next = static_cast<std::int32_t>(m_cases.rows());
  // Grids that were simulated on the machine of the deck are simulated again, which takes no time.
  const auto is_measured = [&](std::size_t row) { return item<std::int32_t>(m_simulated, "case", row) >= 0; };
  std::size_t rows = m_simulated.rows();
  while (rows > 0 && !is_measured(rows - 1)) --rows;
  m_simulated.keep_rows(rows);
  drop_rows(m_links.table(), "simulation", rows);
}

GridResult ScalingResults::result(std::size_t row, const PlanParallelTable& grid) const {
  const auto number = [&](const char* column) { return item<double>(m_cases, column, row); };
  GridResult result{.grid = grid};
  result.measurement = outcome_of(m_cases, row);
  result.tokens = item<std::int64_t>(m_cases, "tokens", row);
  result.measurement.samples = samples_of(m_cases, row);
  result.exchanges = {number("communication_time"), number("communication_share"), number("bubble_share")};
  for (std::size_t i = 0; i < m_simulated.rows(); ++i)
    if (std::cmp_equal(item<std::int32_t>(m_simulated, "case", i), row)) {
      result.simulation.emplace();
      result.simulation->seconds = item<double>(m_simulated, "simulated_time", i);
    }
  return result;
}

void ScalingResults::add(const ScalingDeck& deck, const std::string& space, const GridResult& first,
                         const GridResult& result) {
  const Measurement& m = result.measurement;
  const double median = median_of(result);
  std::vector<Table::Cell> cells = outcome_cells(m, space);
  for (Table::Cell& cell : grid_cells(result.grid)) cells.push_back(std::move(cell));
  cells.insert(cells.end(),
               {{"op", std::string(name_of(deck.sweep.what))},
                {"zero", deck.sweep.zero},
                {"sequence", std::int32_t(result.grid.sequence)},
                {"context_exchange", std::string(name_of(result.grid.context_exchange))},
                {"schedule", std::string(name_of(result.grid.schedule))},
                {"parts", result.grid.parts},
                {"scaling", std::string(name_of(deck.sweep.scaling))},
                {"dtype", std::string(name_of(deck.precision.storage))},
                {"execution_space", space},
                {"tokens", result.tokens},
                {"time", m.samples.seconds},
                {"inner_iterations", m.samples.inner_iterations},
                {"time_min", m.samples.seconds.empty() ? nan : std::ranges::min(m.samples.seconds)},
                {"time_median", median},
                {"noisy", noisy(m)},
                {"token_rate", static_cast<double>(result.tokens) / median},
                {"efficiency", efficiency(first, median_of(first), result, median)},
                {"communication_time", result.exchanges.seconds},
                {"communication_share", result.exchanges.share},
                {"bubble_share", result.grid.pipeline > 1 ? result.exchanges.bubble : nan}});
  m_cases.append(cells);
  for (const RankCalls& c : result.communication)
    m_communication.append(
        {c, m_next,
         c.seconds / static_cast<double>(result.calls) / result.seconds[static_cast<std::size_t>(c.rank)]});
  for (std::size_t rank = 0; rank < result.memory.size(); ++rank)
    m_ranks.append({{"case", m_next},
                    {"rank", static_cast<std::int64_t>(rank)},
                    {"predicted_bytes", result.memory[rank].predicted},
                    {"peak_bytes", result.memory[rank].peak}});
  if (result.simulation) add_simulation(first, result, m_next);
  ++m_next;
}

void ScalingResults::add_simulated(const GridResult& first, const GridResult& result) {
  if (result.simulation) add_simulation(first, result, -1);
}

void ScalingResults::add_simulation(const GridResult& first, const GridResult& result,
                                    std::int32_t row_of_case) {
  const Simulation& s = *result.simulation;
  const double measured = median_of(result);
  std::vector<Table::Cell> cells = grid_cells(result.grid);
  cells.insert(cells.end(), {{"case", row_of_case},
                             {"simulated_time", s.seconds},
                             {"measured_time", measured},
                             {"relative_error", (s.seconds - measured) / measured},
                             {"efficiency", efficiency(first, simulated_seconds(first), result, s.seconds)},
                             {"computed_share", s.computed / s.seconds},
                             {"bubble_share", s.bubble},
                             {"predicted_bytes", std::uint64_t(result.measurement.predicted)},
                             {"cores", s.cores},
                             {"layer_forward", s.times.forward},
                             {"layer_backward", s.times.backward},
                             {"layer_weights", s.times.weights},
                             {"ends", s.times.ends},
                             {"update", s.times.update}});
  const auto row = static_cast<std::int32_t>(m_simulated.rows());
  m_simulated.append(cells);
  for (std::size_t a = 0; a < call_axes; ++a) {
    const auto axis = static_cast<CallAxis>(a);
    if (const int size = ranks_along(axis, s.grid); size > 1)
      m_links.append({s.links[a], row, std::string(name_of(axis)), size});
  }
}

std::vector<ReportColumn> scaling_columns() {
  return {{"tokens", "tokens", 7},
          {"time", "time_s", 11},
          {"", "noisy"},
          {"effic.", "efficiency", 7},
          {"sent", "communication_share", 7},
          {"bubble", "bubble_share", 7},
          {"memory", "peak_bytes", 8},
          {"simulated", "simulated_time_s", 10},
          {"error", "simulation_error", 8},
          {"status", "status", 12, true}};
}

std::vector<ReportValue> scaling_values(const GridResult& first, const GridResult& result, bool runs) {
  const auto shown = [](double value, const std::string& text) {
    return ReportValue{value == value ? text : "-", value};
  };
  const auto time = [&](double seconds, const char* mark) {
    return shown(seconds, seconds < 10 ? fmt::format("{}{:.4g} ms", mark, 1e3 * seconds)
                                       : fmt::format("{}{:.4g} s", mark, seconds));
  };
  const auto percent = [&](double share, const char* mark) {
    return shown(share, fmt::format("{}{:.1f} %", mark, 100 * share));
  };
  const double median = median_of(result), simulated = simulated_seconds(result);
  const double sent = runs ? result.exchanges.share : nan;
  // Of simulations that of the formula.
  const double bubble = result.grid.pipeline == 1 ? nan
                        : runs                    ? result.exchanges.bubble
                        : result.simulation       ? result.simulation->bubble
                                                  : nan;
  const Measurement& m = result.measurement;
  const bool ok = m.status == CaseStatus::ok;
  // What noise decides has no ratio.
  const bool disturbed = noisy(m);
  const double share = !runs ? efficiency(first, simulated_seconds(first), result, simulated)
                       : disturbed || noisy(first.measurement)
                           ? nan
                           : efficiency(first, median_of(first), result, median);
  const std::string status = runs || !ok ? case_status_names[static_cast<std::size_t>(m.status)] : "simulated";
  return {count_value(result.tokens),
          time(median, disturbed ? "! " : ""),
          {"", std::int64_t(disturbed)},
          percent(share, runs ? "" : "~"),
          percent(sent, ""),
          percent(bubble, runs ? "" : "~"),
          bytes_value(static_cast<std::int64_t>(runs ? m.peak_total : m.predicted)),
          time(simulated, "~"),
          percent(disturbed ? nan : (simulated - median) / median, ""),
          {status, status, ok ? Tone::good : Tone::doubtful}};
}

}  // namespace kformer::drivers
