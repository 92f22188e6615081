// SPDX-License-Identifier: MIT
// kformer-scaling: a step of training, or a layer, on several grids of ranks, and simulations of it.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ranges>
#include <vector>

#include "app/memory/scratch.hpp"
#include "app/program.hpp"
#include "app/ranks.hpp"
#include "app/report.hpp"
#include "app/say.hpp"
#include "app/session.hpp"
#include "app/stop.hpp"
#include "kformer/load/llama_config.hpp"
#include "measure/spaces.hpp"
#include "scaling/scaling_results.hpp"
#include "scaling/scaling_run.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-scaling";
constexpr const char* kind = "scaling";
constexpr const char* summary =
    "Times a training step or a layer on grids of ranks, and simulates grids of other machines.";

// A grid that runs or, on the machine of the deck, is simulated.
struct ScalingCase {
  PlanParallelTable grid;
  bool runs;
};

std::vector<ScalingCase> cases_of(const ScalingDeck& deck) {
  std::vector<ScalingCase> cases;
  for (const std::string& grid : deck.sweep.grids) cases.push_back({grid_of_deck(deck, grid), true});
  if (deck.simulate)
    for (const std::string& grid : deck.simulate->grids) cases.push_back({grid_of_deck(deck, grid), false});
  return cases;
}

std::string name_of_case(const ScalingCase& c) {
  return fmt::format("{:<12} {}", grid_name(c.grid), c.runs ? "runs" : "is simulated");
}

void declare_results(ResultFile& file) { const ScalingResults tables(file); }

// Of the grids so far.
struct Outcome {
  bool ran = false, failed_check = false;
  std::optional<std::string> stopped;

  void add(const GridResult& result, bool runs) {
    ran |= !runs || !result.measurement.samples.seconds.empty();
    failed_check |= result.measurement.status == CaseStatus::failed_check;
  }
};

// The grids that an interrupted run has, which rank 0 knows alone: their results, and what all ranks must know.
struct FinishedGrids {
  std::vector<GridResult> results;
  std::size_t count = 0, to_run = 0;
  Outcome outcome;
};

FinishedGrids finished_grids(const ScalingResults& tables, const std::vector<ScalingCase>& cases,
                             const ResultFile& file, Ranks& ranks) {
  FinishedGrids finished;
  finished.to_run = static_cast<std::size_t>(std::ranges::count_if(cases, &ScalingCase::runs));
  if (tables.finished() > finished.to_run)
    throw FileError(fmt::format("'{}' cannot be continued: it has {} grids that ran, and the deck {}",
                                file.part_path().string(), tables.finished(), finished.to_run));
  for (std::size_t i = 0; i < tables.finished(); ++i) {
    finished.results.push_back(tables.result(i, cases[i].grid));
    finished.outcome.add(finished.results.back(), true);
  }
  const std::vector<double> own{static_cast<double>(tables.finished()), finished.outcome.ran ? 1.0 : 0.0,
                                finished.outcome.failed_check ? 1.0 : 0.0};
  const std::vector<double> all = ranks.gather(own, "the finished grids");
  finished.count = static_cast<std::size_t>(all[0]);
  finished.outcome.ran = all[1] != 0;
  finished.outcome.failed_check = all[2] != 0;
  return finished;
}

int close(ResultFile& file, const Outcome& outcome, bool first, std::FILE* log) {
  if (!first)
    return outcome.stopped        ? exit_stopped
           : outcome.failed_check ? exit_check
           : outcome.ran          ? exit_ok
                                  : exit_nothing;
  if (outcome.stopped) {
    file.checkpoint();
    say(log, "stopped ({}); the finished grids are in {}, and --resume goes on with them\n", *outcome.stopped,
        file.part_path().string());
    return exit_stopped;
  }
  file.finish();
  say(log, "results: {}\n", file.path().string());
  if (outcome.failed_check) return exit_check;
  if (outcome.ran) return exit_ok;
  say(stderr, "error: {}\n", no_case_ran);
  return exit_nothing;
}

// One rank may lack memory and go on; of several, others wait for it.
GridResult run_grid(ScalingRun& run, const PlanParallelTable& grid, const ScalingDeck& deck,
                    const Ranks& ranks) {
  try {
    return run.run(grid);
  } catch (const std::exception& error) {
    GridResult result{.grid = grid};
    if (ranks.size() > 1 || !record_out_of_memory(error, deck.run.on_oom, result.measurement)) throw;
    return result;
  }
}

// Whether an interrupted run on fewer ranks refused a grid that these can run.
void refuse_other_ranks(const FinishedGrids& finished, const ScalingRun& run, const ResultFile& file) {
  for (const GridResult& result : finished.results)
    if (result.measurement.status == CaseStatus::unsupported && run.refusal(result.grid).empty())
      throw FileError(fmt::format(
          "'{}' cannot be continued: grid {} lacked ranks then and does not now; start as many ranks as then, "
          "or start anew (--overwrite)",
          file.part_path().string(), grid_name(result.grid)));
}

Report report_of(const std::vector<ScalingCase>& cases, ReportFormat format) {
  std::vector<std::vector<ReportValue>> points;
  for (const ScalingCase& c : cases)
    points.push_back({text_value(grid_name(c.grid)), count_value(c.grid.ranks())});
  return Report({format,
                 shows_colour(stdout),
                 {{"grid", "grid", 8, true}, {"ranks", "ranks", 5}},
                 points,
                 scaling_columns(),
                 is_terminal(stdout)});
}

int run_grids(const ScalingDeck& deck, const std::string& space, ReportFormat format, ResultFile& file,
              Ranks& ranks, NoiseWatch& noise) {
  const std::size_t per_thread = scratch_per_thread(llama_config(*deck.model), false);
  require_scratch(forecast_scratch(space, per_thread), ranks.free_memory(space));
  const std::size_t scratch = reserve_scratch(space, per_thread);
  const StopRequest stop(deck.run.walltime_s);
  const std::vector<ScalingCase> cases = cases_of(deck);
  std::FILE* log = log_beside(format);
  Report report = report_of(cases, format);
  ScalingResults tables(file);
  const FinishedGrids finished = finished_grids(tables, cases, file, ranks);
  ScalingRun run(deck, space, ranks);
  refuse_other_ranks(finished, run, file);
  if (!finished.results.empty())
    say(log, "resumed: {} of {} grids are from {}\n", finished.count, finished.to_run,
        file.part_path().string());
  // With the first row: mpiexec of Open MPI 5 loses an output of one character, "[".
  fmt::print("{}", report.head());
  std::optional<GridResult> first, first_simulated;
  Outcome outcome = finished.outcome;
  const auto print = [&](const GridResult& reference, const GridResult& result, bool runs) {
    fmt::print("{}", report.row(scaling_values(reference, result, runs), result.measurement.message));
    std::fflush(stdout);
  };
  if (!finished.results.empty()) {
    first = finished.results.front();
    for (const GridResult& result : finished.results) {
      noise.add(result.measurement);
      print(*first, result, true);
    }
  }
  for (const ScalingCase& c : std::views::drop(cases, static_cast<std::ptrdiff_t>(finished.count))) {
    outcome.stopped = ranks.agreed(stop.reason());
    if (outcome.stopped) break;
    // Simulations are of rank 0 alone.
    if (!c.runs && !ranks.is_first()) {
      outcome.ran = true;
      continue;
    }
    const GridResult result = c.runs ? run_grid(run, c.grid, deck, ranks) : run.simulated(c.grid);
    auto& reference = c.runs ? first : first_simulated;
    if (!reference) reference = result;
    outcome.add(result, c.runs);
    if (!ranks.is_first()) continue;
    if (c.runs)
      tables.add(deck, space, *first, result);
    else
      tables.add_simulated(*first_simulated, result);
    file.checkpoint();
    noise.add(result.measurement);
    print(*reference, result, c.runs);
  }
  fmt::print("{}", report.end());
  say(log, "\n~: simulated, not measured\n");
  if (ranks.is_first()) say(log, "{}", scratch_text(scratch));
  if (!outcome.stopped && ranks.is_first()) say(log, "{}", noise.end());
  const int code = close(file, outcome, ranks.is_first(), log);
  // A rank that fails ends the others, also the one that writes.
  ranks.barrier("the end");
  return code;
}

int run(const CommandLine& line, const ScalingDeck& deck, Ranks& ranks) {
  const std::string space = execution_space_of(deck.run, measure::built_spaces());
  Ranks::require_backend(deck.sweep.backend, "sweep.backend", space);
  if (line.dry_run) return list_cases(deck.run, cases_of(deck), name_of_case);
  NoiseWatch noise;
  ranks.begin(deck.sweep.timeout_s, deck.record.resolved);
  Session session(line, program, kind, deck.run, deck.output, deck.record, log_beside(line.format),
                  ranks.is_first());
  ranks.connect_devices(deck.sweep.backend);
  ranks.find_memory(space);
  return run_grids(deck, space, line.format, session.file(), ranks, noise);
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::main_of_ranks(argc, argv, [&](drivers::Ranks& ranks) {
    const auto run = [&](const drivers::CommandLine& line, const ScalingDeck& deck) {
      return drivers::run(line, deck, ranks);
    };
    return drivers::driver_main(argc, argv, drivers::program, drivers::summary, load_scaling_deck, run,
                                {.table = true,
                                 .resumes = drivers::Resumes::finished_cases,
                                 .results = {drivers::kind, drivers::declare_results}});
  });
}
