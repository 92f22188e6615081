// SPDX-License-Identifier: MIT
#include "sweep/case_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "app/command_line.hpp"
#include "app/stop.hpp"
#include "measure/allocation_witness.hpp"
#include "sweep/measurement_report.hpp"

namespace kformer::drivers {

namespace {

void measure_spaces(const CaseLoop& loop, std::FILE* log) {
  for (const std::string& space : std::set(loop.spaces.begin(), loop.spaces.end())) {
    const measure::MachineLimits limits = measure::machine_limits(space);
    loop.add_machine(space, limits);
    fmt::print(log, "{}", measure::describe(space, limits));
  }
}

}  // namespace

int run_cases(const CaseLoop& loop, const RunTable& run, const ProfileTable& profile, ResultFile& file) {
  if (profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
  const StopRequest stop(run.walltime_s);
  const auto stopping = [&] { return stop.reason().has_value(); };
  std::FILE* log = log_beside(loop.format);
  measure_spaces(loop, log);
  Report report({loop.format, shows_colour(stdout), loop.labels, loop.points, measured_columns()});
  fmt::print(log, "\n");
  fmt::print("{}", report.head());
  std::fflush(stdout);

  bool failed_check = false, failed = false, out_of_memory = false, ran = false;
  std::size_t check_bytes = 0;
  ProgressLine progress(loop.spaces.size());
  std::optional<std::string> stopped;
  for (std::size_t i = 0; i < loop.spaces.size() && !stopped; ++i) {
    progress.begin(i, loop.name(i));
    const Measurement* result = nullptr;
    try {
      result = &loop.run(i, stopping);
    } catch (const OutOfMemory& error) {
      progress.clear();
      fmt::print(stderr, "error: {}\n", error.what());
      out_of_memory = true;
      break;
    }
    progress.clear();
    stopped = stop.reason();
    if (result->samples.seconds.empty() && stopped) break;
    failed_check |= result->status == CaseStatus::failed_check;
    failed |= result->status == CaseStatus::error;
    ran |= !result->samples.seconds.empty();
    check_bytes = std::max(check_bytes, result->check_bytes);
    loop.keep();
    fmt::print("{}", report.row(measured_values(*result), result->message));
    std::fflush(stdout);
  }

  fmt::print("{}", report.end());
  fmt::print(log, "\n");
  if (check_bytes > 0)
    fmt::print(log, "checks: up to {} after a case, not in its peak\n", format_bytes(check_bytes));
  loop.finish(log);
  if (stopped || out_of_memory) {
    file.checkpoint();
    fmt::print(log, "stopped ({}); the finished cases are in {}\n", stopped.value_or("out of memory"),
               file.part_path().string());
    return out_of_memory ? exit_out_of_memory : exit_stopped;
  }
  file.finish();
  fmt::print(log, "results: {}\n", file.path().string());
  if (failed_check) return exit_check;
  if (failed) return exit_failure;
  if (ran) return exit_ok;
  fmt::print(stderr, "error: {}\n", no_case_ran);
  return exit_nothing;
}

}  // namespace kformer::drivers
