// SPDX-License-Identifier: MIT
#include "memory/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "app/command_line.hpp"
#include "measure/memory_available.hpp"

namespace kformer::drivers {

namespace {

using enum ColumnType;

constexpr std::array columns_of_classes{std::pair{"weights_bytes", MemoryClass::weights},
                                        std::pair{"gradients_bytes", MemoryClass::gradients},
                                        std::pair{"kv_cache_bytes", MemoryClass::kv_cache},
                                        std::pair{"activations_bytes", MemoryClass::activations},
                                        std::pair{"workspace_bytes", MemoryClass::workspace}};

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
  for (const auto& [name, memory_class] : columns_of_classes)
    t.column({name, u64, "byte", fmt::format("peak bytes of {}", to_string(memory_class))});
  t.column({"predicted_bytes", u64, "byte", "peak bytes of all classes together"});
  t.column({"available_bytes", f64, "byte", "available bytes; NaN if the system does not report them"});
  t.column({"fits", flag, "1", "whether the peak fits", "", {"no", "yes"}});
  t.column({"largest_context", i64, "1", "tokens per sequence that would fit; 0 if none, -1 if unknown"});
  t.column(
      {"status", flag, "1", "ok, skipped_memory if it does not fit, or unsupported", "", case_status_names});
  t.column({"message", text, "1", "why it cannot run"});
  return t;
}

}  // namespace

PlannedCase planned(MemoryPlanner& planner, const MemoryCase& point, std::optional<std::size_t> available) {
  PlannedCase c{point, {}, available, -1, {}};
  try {
    c.forecast = planner.forecast(point);
    if (!available) return c;
    const auto fits = [&](std::int64_t context) {
      MemoryCase other = point;
      other.context = context;
      return planner.forecast(other).total <= *available;
    };
    const std::int64_t longest = std::max(point.context, planner.model().max_position_embeddings);
    c.largest_context = fits(longest) ? longest : largest_seq_len(longest, fits);
  } catch (const FileError&) {
    throw;
  } catch (const Error& error) {
    c.unsupported = error.what();
  }
  return c;
}

PlanResults::PlanResults(ResultFile& file, const PlanTable& plan)
    : m_plan(plan), m_cases(declare_cases(file)), m_measurements(file) {}

void PlanResults::add(const PlannedCase& c) {
  const MemoryCase& p = c.point;
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
                                 {"fits", c.unsupported.empty() && c.fits()},
                                 {"largest_context", c.largest_context},
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

std::string plan_head() {
  return fmt::format(
      "{:<8} {:<8} {:<5} {:<5} {:<13} {:>6} {:>8} {:>12} {:>12} {:>12} {:>12} {:>12}  {:<4} {:>8}\n", "space",
      "purpose", "dtype", "quant", "kv_cache", "batch", "context", "weights", "cache", "activations",
      "workspace", "total", "fits", "largest");
}

std::string plan_row(const PlannedCase& c) {
  const MemoryCase& p = c.point;
  const auto bytes = [&](MemoryClass memory_class) { return format_bytes(bytes_of(c.forecast, memory_class)); };
  std::string row =
      fmt::format("{:<8} {:<8} {:<5} {:<5} {:<13} {:>6} {:>8} ", p.execution_space, name_of(p.purpose),
                  name_of(p.dtype), name_of(p.weights), name_of(p.kv_cache), p.batch, p.context);
  if (!c.unsupported.empty()) return row + "unsupported\n  " + c.unsupported + "\n";
  return row + fmt::format("{:>12} {:>12} {:>12} {:>12} {:>12}  {:<4} {:>8}\n", bytes(MemoryClass::weights),
                           bytes(MemoryClass::kv_cache), bytes(MemoryClass::activations),
                           bytes(MemoryClass::workspace), format_bytes(c.forecast.total),
                           !c.available ? "?"
                           : c.fits()   ? "yes"
                                        : "no",
                           c.largest_context < 0 ? "?" : std::to_string(c.largest_context));
}

int run_plan(MemoryPlanner& planner, const MemoryPlanDeck& deck, const std::vector<MemoryCase>& cases,
             const MemoryThereIs& there_is, ResultFile& file) {
  PlanResults results(file, deck.plan);
  fmt::print("{}", plan_head());
  for (const MemoryCase& point : cases) {
    const PlannedCase c = planned(planner, point, there_is(point.execution_space));
    results.add(c);
    fmt::print("{}", plan_row(c));
    std::fflush(stdout);
  }
  file.finish();
  fmt::print("results: {}\n", file.path().string());
  return exit_ok;
}

}  // namespace kformer::drivers
