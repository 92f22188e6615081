// SPDX-License-Identifier: MIT
#include "memory/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/command_line.hpp"
#include "app/memory/scratch.hpp"
#include "app/say.hpp"
#include "measure/memory_available.hpp"
#include "memory/advice.hpp"
#include "memory/grid_report.hpp"
#include "memory/plan_report.hpp"

namespace kformer::drivers {

namespace {

using enum ColumnType;

constexpr std::array columns_of_classes{std::pair{"weights_bytes", MemoryClass::weights},
                                        std::pair{"gradients_bytes", MemoryClass::gradients},
                                        std::pair{"optimizer_bytes", MemoryClass::optimizer},
                                        std::pair{"kv_cache_bytes", MemoryClass::kv_cache},
                                        std::pair{"activations_bytes", MemoryClass::activations},
                                        std::pair{"workspace_bytes", MemoryClass::workspace},
                                        std::pair{"communication_bytes", MemoryClass::communication},
                                        std::pair{"io_bytes", MemoryClass::io}};

std::size_t bytes_of(const MemoryForecast& forecast, MemoryClass memory_class) {
  return forecast.bytes[static_cast<std::size_t>(memory_class)];
}

CaseStatus status_of(const PlannedCase& c) {
  if (!c.unsupported.empty()) return CaseStatus::unsupported;
  return c.fits() ? CaseStatus::ok : CaseStatus::skipped_memory;
}

Table& declare_cases(ResultFile& file) {
  Table& t = file.table("cases", "case", "case of the plan");
  t.column({"op", text, "1", "what would be run"});
  for (const char* name : {"execution_space", "dtype", "weights", "kv_cache", "activations"})
    t.column({name, text, "1", std::string(name) + " of the case"});
  for (const char* name : {"prefill_chunk", "batch", "context"})
    t.column({name, i64, "1", std::string(name) + " of the case"});
  t.column({"recompute", text, "1", "recompute of the case"});
  t.column({"schedule", text, "1", "in training: what layers keep for backward"});
  for (const auto& [name, memory_class] : columns_of_classes)
    t.column({name, u64, "byte", fmt::format("peak bytes of {}", to_string(memory_class))});
  t.column({"predicted_bytes", u64, "byte", "peak bytes of all classes together"});
  t.column({.name = "space_bytes",
            .type = u64,
            .units = "byte",
            .long_name = "peak bytes in the memory of the execution space, which available_bytes limits",
            .when = scratch_column().when});  // which files of earlier programs lack, too
  t.column(scratch_column());
  t.column({"available_bytes", f64, "byte", "available bytes; NaN if the system does not report them"});
  t.column(
      {"fits", flag, "1", "whether the peak in the memory of the execution space fits", "", {"no", "yes"}});
  t.column({"largest_context", i64, "1", "tokens per sequence that would fit; 0 if none, -1 if unknown"});
  t.column({"largest_batch", i64, "1",
            fmt::format("sequences that would fit, up to {}; 0 if none, -1 if unknown", longest_batch)});
  t.column({"recompute_share", f64, "1", "estimated time of recomputation over that of forward and backward"});
  t.column(
      {"status", flag, "1", "ok, skipped_memory if it does not fit, or unsupported", "", case_status_names});
  t.column({"message", text, "1", "why it cannot run"});
  return t;
}

Table& declare_grids(ResultFile& file) {
  Table& t =
      file.table("grids", "grid", "grids of [grids] that a training can have, of each case the best first");
  t.when("with [grids]");
  t.column({"case", i64, "1", "number of the case in /cases, from 0"});
  for (const char* name : {"data", "context", "tensor", "pipeline", "zero"})
    t.column({name, i64, "1", fmt::format("parallel.{}", name)});
  constexpr auto exchanges = names_of<ContextExchange>;
  t.column(
      {"context_exchange", flag, "1", "parallel.context_exchange", "", {exchanges.begin(), exchanges.end()}});
  t.column({"predicted_bytes", u64, "byte", "peak bytes of the rank that needs most"});
  t.column({"fits", flag, "1", "whether they fit", "", {"no", "yes"}});
  t.column({"time", f64, "s", "estimated time of a step"});
  t.column({"idle_time", f64, "s", "of it, in which a rank waits for other stages"});
  t.column({"communication_time", f64, "s", "of it, in messages"});
  for (const char* name : {"data", "context", "tensor", "pipeline"})
    t.column({fmt::format("{}_bytes", name), f64, "byte",
              fmt::format("that a rank sends along {} in a step", name)});
  return t;
}

}  // namespace

PlannedCase planned(MemoryPlanner& planner, const MemoryCase& point, std::optional<std::size_t> available) {
  PlannedCase c{.point = point, .forecast = {}, .available = available, .unsupported = {}};
  try {
    c.forecast = planner.forecast(point, available);
    if (!available) return c;
    // By bisection, in which every step must be a case that can run.
    const auto largest = [&](std::int64_t MemoryCase::* axis, const AxisRange& range, std::int64_t most) {
      const auto fits = [&](std::int64_t n) {
        MemoryCase other = point;
        other.*axis = range.value(n);
        try {
          return planner.forecast(other, available).bytes_in_space <= *available;
        } catch (const FileError&) {
          throw;
        } catch (const Error&) {  // beyond what can be counted, or what a step has
          return false;
        }
      };
      const std::int64_t all = range.count(most);
      return range.value(all > 0 && fits(all) ? all : measure::largest_seq_len(all, fits));
    };
    c.largest_context = largest(&MemoryCase::context, planner.contexts(point),
                                std::max(point.context, planner.model().max_position_embeddings));
    c.largest_batch = largest(&MemoryCase::batch, AxisRange{}, std::max(point.batch, longest_batch));
  } catch (const FileError&) {
    throw;
  } catch (const Error& error) {
    c.unsupported = error.what();
  }
  return c;
}

PlanResults::PlanResults(ResultFile& file, const PlanTable& plan)
    : m_plan(plan), m_cases(declare_cases(file)), m_grids(declare_grids(file)), m_measurements(file) {}

void PlanResults::add(const std::vector<GridForecast>& grids, std::optional<std::size_t> limit) {
  for (const GridForecast& g : grids)
    m_grids.append({{"case", m_planned - 1},
                    {"data", g.grid.data},
                    {"context", g.grid.context},
                    {"tensor", g.grid.tensor},
                    {"pipeline", g.grid.pipeline},
                    {"zero", g.grid.zero},
                    {"context_exchange", std::string(name_of(g.grid.context_exchange))},
                    {"predicted_bytes", std::uint64_t(g.bytes)},
                    {"fits", !limit || g.bytes <= *limit},
                    {"time", g.seconds.total()},
                    {"idle_time", g.seconds.idle},
                    {"communication_time", g.seconds.communication},
                    {"data_bytes", g.sent.data},
                    {"context_bytes", g.sent.context},
                    {"tensor_bytes", g.sent.tensor},
                    {"pipeline_bytes", g.sent.pipeline}});
}

void PlanResults::add(const PlannedCase& c) {
  const MemoryCase& p = c.point;
  ++m_planned;
  std::vector<Table::Cell> cells{{"op", name_of(p.purpose)},
                                 {"execution_space", p.execution_space},
                                 {"dtype", name_of(p.dtype)},
                                 {"weights", name_of(p.weights)},
                                 {"kv_cache", name_of(p.kv_cache)},
                                 {"activations", name_of(m_plan.activations)},
                                 {"prefill_chunk", p.prefill_chunk},
                                 {"batch", p.batch},
                                 {"context", p.context},
                                 {"predicted_bytes", std::uint64_t(c.forecast.total)},
                                 {"space_bytes", std::uint64_t(c.forecast.bytes_in_space)},
                                 {"scratch_bytes", std::uint64_t(c.forecast.scratch)},
                                 {"fits", c.unsupported.empty() && c.fits()},
                                 {"largest_context", c.largest_context},
                                 {"largest_batch", c.largest_batch},
                                 {"recompute", name_of(p.recompute)},
                                 {"schedule", c.forecast.schedule},
                                 {"recompute_share", c.forecast.recompute_share},
                                 {"status", case_status_names[static_cast<std::size_t>(status_of(c))]},
                                 {"message", c.unsupported}};
  for (const auto& [name, memory_class] : columns_of_classes)
    cells.push_back({name, std::uint64_t(bytes_of(c.forecast, memory_class))});
  if (c.available) cells.push_back({"available_bytes", static_cast<double>(*c.available)});
  m_cases.append(cells);
  Measurement measurement;
  measurement.peak = c.forecast.bytes;
  m_measurements.add_case(measurement, p.execution_space);
}

int run_plan(MemoryPlanner& planner, const MemoryPlanDeck& deck, const std::vector<MemoryCase>& cases,
             const MemoryThereIs& there_is, const StopCheck& stop, ResultFile& file, ReportFormat format) {
  PlanResults results(file, deck.plan);
  std::FILE* log = log_beside(format);
  ProgressLine progress(cases.size());
  std::map<std::string, std::optional<std::size_t>> budgets;
  for (const MemoryCase& point : cases)
    if (!budgets.contains(point.execution_space))
      budgets[point.execution_space] = there_is(point.execution_space);
  std::optional<std::string> stopped;
  std::vector<PlannedCase> all;
  std::string grid_texts;
  for (const MemoryCase& point : cases) {
    stopped = stop();
    if (stopped) break;
    progress.begin(all.size(), fmt::format("batch {} context {}", point.batch, point.context));
    results.add(all.emplace_back(planned(planner, point, budgets.at(point.execution_space))));
    progress.clear();
    if (!deck.grids || point.purpose != PlanPurpose::train) continue;
    const auto limit = budgets.at(point.execution_space);
    const auto grids = planner.grids(point, limit);
    results.add(grids, limit);
    grid_texts += grid_report(grids, deck.grids->ranks, limit);
  }
  fmt::print("{}", plan_report(all, format, shows_colour(stdout), is_terminal(stdout)));
  if (stopped) {
    file.checkpoint();
    say(log, "stopped ({}); the finished cases are in {}\n", *stopped, file.part_path().string());
    return exit_stopped;
  }
  const bool training =
      std::ranges::any_of(cases, [](const MemoryCase& c) { return c.purpose == PlanPurpose::train; });
  std::size_t scratch = 0;
  for (const PlannedCase& c : all) scratch = std::max(scratch, c.forecast.scratch);
  const std::string notes =
      advice(all) + context_note(all, planner.model().max_position_embeddings) + not_counted(training, scratch);
  say(log, "{}{}", prose(log, notes), grid_texts);
  file.finish();
  say(log, "results: {}\n", file.path().string());
  const bool ran = std::ranges::any_of(all, [](const PlannedCase& c) { return c.unsupported.empty(); });
  if (ran) return exit_ok;
  say(stderr, "error: {}\n", no_case_ran);
  return exit_nothing;
}

}  // namespace kformer::drivers
