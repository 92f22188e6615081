// SPDX-License-Identifier: MIT
#include "sweep/case_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "app/command_line.hpp"
#include "app/memory/scratch.hpp"
#include "app/say.hpp"
#include "app/stop.hpp"
#include "kformer/core/error.hpp"
#include "measure/allocation_witness.hpp"
#include "sweep/check_kernels.hpp"
#include "sweep/measurement_report.hpp"
#include "sweep/measurement_tables.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {

namespace {

// On the spaces of the cases, and on those of their checks.
std::size_t reserve_scratch_of(const CaseLoop& loop) {
  std::set<std::string> spaces;
  for (const std::string& space : loop.spaces) spaces.insert({space, reference_space(space)});
  std::size_t bytes = 0;
  for (const std::string& space : spaces) bytes += reserve_scratch(space, loop.scratch_per_thread);
  return bytes;
}

}  // namespace

int run_cases(const CaseLoop& loop, const RunTable& run, const ProfileTable& profile, ResultFile& file) {
  if (loop.finished > loop.spaces.size())
    throw FileError(fmt::format("'{}' cannot be continued: it has {} cases, and the deck {}",
                                file.part_path().string(), loop.finished, loop.spaces.size()));
  if (profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
  const std::size_t scratch = reserve_scratch_of(loop);
  const StopRequest stop(run.walltime_s);
  const auto stopping = [&] { return stop.reason().has_value(); };
  std::FILE* log = log_beside(loop.format);
  NoiseWatch noise;
  declare_load(file, noise.load());
  if (profile.machine_limits)
    noise.begin(std::set(loop.spaces.begin(), loop.spaces.end()), [&](const auto& space, const auto& limits) {
      if (loop.finished == 0) loop.add_machine(space, limits);
      say(log, "{}", measure::describe(space, limits));
    });
  if (loop.finished > 0)
    say(log, "resumed: {} of {} cases are from {}\n", loop.finished, loop.spaces.size(),
        file.part_path().string());
  Report report(
      {loop.format, shows_colour(stdout), loop.labels, loop.points, measured_columns(), is_terminal(stdout)});
  say(log, "\n");
  fmt::print("{}", report.head());
  std::fflush(stdout);

  bool failed_check = false, failed = false, out_of_memory = false, ran = false;
  std::size_t check_bytes = 0;
  const auto count = [&](const Measurement& result) {
    failed_check |= result.status == CaseStatus::failed_check;
    failed |= result.status == CaseStatus::error;
    ran |= !result.samples.seconds.empty();
    check_bytes = std::max(check_bytes, result.check_bytes);
    noise.add(result);
  };
  const auto print = [&](const Measurement& result) {
    fmt::print("{}", report.row(measured_values(result), result.message));
    std::fflush(stdout);
  };
  for (std::size_t i = 0; i < loop.finished; ++i) {
    const Measurement& result = loop.recall(i);
    count(result);
    print(result);
  }
  ProgressLine progress(loop.spaces.size() - loop.finished);
  std::optional<std::string> stopped;
  for (std::size_t i = loop.finished; i < loop.spaces.size() && !stopped; ++i) {
    progress.begin(i - loop.finished, loop.name(i));
    const Measurement* result = nullptr;
    try {
      result = &loop.run(i, stopping);
    } catch (const OutOfMemory& error) {
      progress.clear();
      say(stderr, "error: {}\n", error.what());
      out_of_memory = true;
      break;
    }
    progress.clear();
    stopped = stop.reason();
    if (result->samples.seconds.empty() && stopped) break;
    count(*result);
    loop.keep();
    print(*result);
  }

  fmt::print("{}", report.end());
  say(log, "\n");
  if (check_bytes > 0) say(log, "checks: up to {} after a case, not in its peak\n", format_bytes(check_bytes));
  say(log, "{}", scratch_text(scratch));
  if (!stopped) say(log, "{}", noise.end());
  loop.finish(log);
  if (stopped || out_of_memory) {
    file.checkpoint();
    say(log, "stopped ({}); the finished cases are in {}, and --resume goes on with them\n",
        stopped.value_or("out of memory"), file.part_path().string());
    return out_of_memory ? exit_out_of_memory : exit_stopped;
  }
  file.finish();
  say(log, "results: {}\n", file.path().string());
  if (failed_check) return exit_check;
  if (failed) return exit_failure;
  if (ran) return exit_ok;
  say(stderr, "error: {}\n", no_case_ran);
  return exit_nothing;
}

}  // namespace kformer::drivers
