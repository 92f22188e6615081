// SPDX-License-Identifier: MIT
#include "sweep/case_loop.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "app/command_line.hpp"
#include "app/stop.hpp"
#include "measure/allocation_witness.hpp"

namespace kformer::drivers {

namespace {

void progress(std::size_t done, std::size_t of, const std::string& name) {
  const bool terminal = isatty(2) != 0;
  fmt::print(stderr, "{}[{}/{}] {}{}", terminal ? "\r\033[K" : "", done, of, name, terminal ? "" : "\n");
  if (terminal) std::fflush(stderr);
}

void clear_progress() {
  if (isatty(2) != 0) fmt::print(stderr, "\r\033[K");
}

void measure_spaces(const CaseLoop& loop) {
  for (const std::string& space : std::set(loop.spaces.begin(), loop.spaces.end())) {
    const measure::MachineLimits limits = measure::machine_limits(space);
    loop.add_machine(space, limits);
    fmt::print("{}", measure::describe(space, limits));
  }
}

}  // namespace

int run_cases(const CaseLoop& loop, const RunTable& run, const ProfileTable& profile, ResultFile& file) {
  if (profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
  const StopRequest stop(run.walltime_s);
  const auto stopping = [&] { return stop.reason().has_value(); };
  measure_spaces(loop);
  fmt::print("\n{}", loop.head);
  std::fflush(stdout);

  bool failed_check = false, failed = false, out_of_memory = false, ran = false;
  std::size_t check_bytes = 0;
  std::optional<std::string> stopped;
  for (std::size_t i = 0; i < loop.spaces.size() && !stopped; ++i) {
    progress(i + 1, loop.spaces.size(), loop.name(i));
    const Measurement* result = nullptr;
    try {
      result = &loop.run(i, stopping);
    } catch (const OutOfMemory& error) {
      clear_progress();
      fmt::print(stderr, "error: {}\n", error.what());
      out_of_memory = true;
      break;
    }
    clear_progress();
    stopped = stop.reason();
    if (result->samples.seconds.empty() && stopped) break;
    failed_check |= result->status == CaseStatus::failed_check;
    failed |= result->status == CaseStatus::error;
    ran |= !result->samples.seconds.empty();
    check_bytes = std::max(check_bytes, result->check_bytes);
    fmt::print("{}", loop.keep());
    std::fflush(stdout);
  }

  fmt::print("\n");
  if (check_bytes > 0)
    fmt::print("checks: up to {} after a case, not in its peak\n", format_bytes(check_bytes));
  loop.finish();
  if (stopped || out_of_memory) {
    file.checkpoint();
    fmt::print("stopped ({}); the finished cases are in {}\n", stopped.value_or("out of memory"),
               file.part_path().string());
    return out_of_memory ? exit_out_of_memory : exit_stopped;
  }
  file.finish();
  fmt::print("results: {}\n", file.path().string());
  if (failed_check) return exit_check;
  if (failed) return exit_failure;
  if (ran) return exit_ok;
  fmt::print(stderr, "error: {}\n", no_case_ran);
  return exit_nothing;
}

}  // namespace kformer::drivers
