// SPDX-License-Identifier: MIT
#include "memory/grid_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "app/report.hpp"

namespace kformer::drivers {

namespace {

constexpr std::size_t most_rows = 10;

ReportValue share(double part, double whole) {
  const double value = whole > 0 ? part / whole : 0;
  return {fmt::format("{:.0f} %", 100 * value), value};
}

// What kformer-train reads.
std::string table_of(const PlanParallelTable& g) {
  std::string text =
      fmt::format("[parallel]\ndata = {}\ncontext = {}\ntensor = {}\n", g.data, g.context, g.tensor);
  if (g.context_exchange == ContextExchange::ring) text += "context_exchange = \"ring\"\n";
  if (g.sequence) text += "sequence = true\n";
  text += fmt::format("pipeline = {}\n", g.pipeline);
  if (g.pipeline > 1) text += fmt::format("schedule = \"{}\"\nparts = {}\n", name_of(g.schedule), g.parts);
  text += fmt::format("zero = {}\norder = \"{}\"\n", g.zero, name_of(g.order));
  if (g.overlap) text += "overlap = true\n";
  if (g.bucket_mib != PlanParallelTable().bucket_mib) text += fmt::format("bucket_mib = {}\n", g.bucket_mib);
  return text;
}

}  // namespace

std::string grid_report(const std::vector<GridForecast>& grids, std::int64_t ranks,
                        std::optional<std::size_t> limit) {
  if (grids.empty())
    return fmt::format("no grid of {} ranks divides this training; change its batch, or the number of ranks\n",
                       ranks);
  Report::Layout layout{.format = ReportFormat::table,
                        .labels = {{"data", "data"},
                                   {"context", "context"},
                                   {"keys", "context_exchange"},
                                   {"tensor", "tensor"},
                                   {"pipeline", "pipeline"},
                                   {"ZeRO", "zero"}},
                        .points = {},
                        .results = {{"memory", "bytes"},
                                    {"fits", "fits"},
                                    {"step s", "time"},
                                    {"idle", "idle_share"},
                                    {"messages", "communication_share"}}};
  std::vector<std::vector<ReportValue>> rows;
  for (const GridForecast& g : grids) {
    if (rows.size() == most_rows) break;
    const bool fits = !limit || g.bytes <= *limit;
    layout.points.push_back({count_value(g.grid.data), count_value(g.grid.context),
                             text_value(name_of(g.grid.context_exchange)), count_value(g.grid.tensor),
                             count_value(g.grid.pipeline), count_value(g.grid.zero)});
    rows.push_back({bytes_value(static_cast<std::int64_t>(g.bytes)),
                    text_value(fits ? "yes" : "no"),
                    {fmt::format("{:.3g}", g.seconds.total()), g.seconds.total()},
                    share(g.seconds.idle, g.seconds.total()),
                    share(g.seconds.communication, g.seconds.total())});
  }
  const std::size_t count = rows.size();
  std::string text =
      fmt::format("\n{} of {} grids of {} ranks; times are estimates:\n", count, grids.size(), ranks);
  text += whole_report(std::move(layout), rows, std::vector<std::string>(count));
  if (limit && grids.front().bytes > *limit) return text + "none of them fits; the first needs least\n";
  return text + "the first one as a table of kformer-train:\n" + table_of(grids.front().grid);
}

}  // namespace kformer::drivers
