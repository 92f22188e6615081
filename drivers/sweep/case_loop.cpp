// SPDX-License-Identifier: MIT
#include "sweep/case_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "app/command_line.hpp"
#include "app/stop.hpp"
#include "measure/allocation_witness.hpp"
#include "sweep/measurement_report.hpp"
#include "sweep/measurement_tables.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Watches the machine: its load before, and its limits before and after.
class NoiseWatch {
 public:
  explicit NoiseWatch(const CaseLoop& loop) : m_loop(loop) {
    m_report.load_before = load_average();
    m_report.cores = std::max(1u, std::thread::hardware_concurrency());
  }

  void begin(std::FILE* log) {
    const auto start = Clock::now();
    for (const std::string& space : std::set(m_loop.spaces.begin(), m_loop.spaces.end())) {
      const measure::MachineLimits limits = measure::machine_limits(space);
      if (m_loop.finished == 0) m_loop.add_machine(space, limits);
      m_before[space] = flop_rate(space);
      fmt::print(log, "{}", measure::describe(space, limits));
    }
    m_effort = seconds_since(start);
    m_begin = Clock::now();
  }

  void add(const Measurement& result) {
    m_report.cases += !result.samples.seconds.empty();
    m_report.noisy_cases += noisy(result);
  }

  // Measures again, unless that takes longer than the run did.
  std::string end() {
    if (seconds_since(m_begin) > m_effort)
      for (const auto& [space, rate] : m_before)
        if (rate > 0) m_report.changes.emplace_back(space, flop_rate(space) / rate);
    return noise_text(m_report);
  }

  double load() const { return m_report.load_before; }

 private:
  // In registers: the arrays of the other limits would add to the memory of the run.
  static double flop_rate(const std::string& space) {
    return measure::case_limits(space, DType::f32, 0).flop_rate;
  }

  const CaseLoop& m_loop;
  NoiseReport m_report;
  std::map<std::string, double> m_before;
  Clock::time_point m_begin;
  double m_effort = 0;
};

}  // namespace

int run_cases(const CaseLoop& loop, const RunTable& run, const ProfileTable& profile, ResultFile& file) {
  if (profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
  const StopRequest stop(run.walltime_s);
  const auto stopping = [&] { return stop.reason().has_value(); };
  std::FILE* log = log_beside(loop.format);
  NoiseWatch noise(loop);
  declare_load(file, noise.load());
  if (profile.machine_limits) noise.begin(log);
  if (loop.finished > 0)
    fmt::print(log, "resumed: {} of {} cases are from {}\n", loop.finished, loop.spaces.size(),
               file.part_path().string());
  Report report({loop.format, shows_colour(stdout), loop.labels, loop.points, measured_columns()});
  fmt::print(log, "\n");
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
      fmt::print(stderr, "error: {}\n", error.what());
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
  fmt::print(log, "\n");
  if (check_bytes > 0)
    fmt::print(log, "checks: up to {} after a case, not in its peak\n", format_bytes(check_bytes));
  if (!stopped) fmt::print(log, "{}", noise.end());
  loop.finish(log);
  if (stopped || out_of_memory) {
    file.checkpoint();
    fmt::print(log, "stopped ({}); the finished cases are in {}, and --resume goes on with them\n",
               stopped.value_or("out of memory"), file.part_path().string());
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
