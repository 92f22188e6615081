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
#include "measure/memory_available.hpp"
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
  std::size_t needed = 0, bytes = 0;
  for (const std::string& space : spaces) needed += forecast_scratch(space, loop.scratch_per_thread);
  require_scratch(needed, measure::host_memory_available());
  for (const std::string& space : spaces) bytes += reserve_scratch(space, loop.scratch_per_thread);
  return bytes;
}

class Sweep {
 public:
  Sweep(const CaseLoop& loop, const RunTable& run, ResultFile& file)
      : m_loop(loop),
        m_file(file),
        m_scratch_bytes(reserve_scratch_of(loop)),
        m_stop(run.walltime_s),
        m_log(log_beside(loop.format)),
        m_report({loop.format, shows_colour(stdout), loop.labels, loop.points, measured_columns(),
                  is_terminal(stdout)}) {}

  void begin(bool machine_limits) {
    declare_load(m_file, m_noise.load());
    if (machine_limits)
      m_noise.begin(std::set(m_loop.spaces.begin(), m_loop.spaces.end()),
                    [&](const auto& space, const auto& limits) {
                      if (m_loop.finished == 0) m_loop.add_machine(space, limits);
                      say(m_log, "{}", measure::describe(space, limits));
                    });
    if (m_loop.finished > 0)
      say(m_log, "resumed: {} of {} cases are from {}\n", m_loop.finished, m_loop.spaces.size(),
          m_file.part_path().string());
    say(m_log, "\n");
    fmt::print("{}", m_report.head());
    std::fflush(stdout);
  }

  void recall_finished() {
    for (std::size_t i = 0; i < m_loop.finished; ++i) {
      const Measurement& result = m_loop.recall(i);
      count(result);
      print(result);
    }
  }

  void run_others() {
    ProgressLine progress(m_loop.spaces.size() - m_loop.finished);
    for (std::size_t i = m_loop.finished; i < m_loop.spaces.size() && !m_stopped; ++i) {
      const Measurement* result = run_case(i, progress);
      if (result == nullptr) return;
      m_stopped = m_stop.reason();
      if (result->samples.seconds.empty() && m_stopped) return;
      count(*result);
      m_loop.keep(i);
      print(*result);
    }
  }

  int end() {
    fmt::print("{}", m_report.end());
    say(m_log, "\n");
    if (m_check_bytes > 0)
      say(m_log, "checks: up to {} after a case, not in its peak\n", format_bytes(m_check_bytes));
    say(m_log, "{}", scratch_text(m_scratch_bytes));
    if (!m_stopped) say(m_log, "{}", m_noise.end());
    m_loop.finish(m_log);
    return m_stopped || m_out_of_memory ? leave_unfinished() : finish();
  }

 private:
  // Nothing if the lack of memory ends the run.
  const Measurement* run_case(std::size_t i, ProgressLine& progress) {
    progress.begin(i - m_loop.finished, m_loop.name(i));
    const Measurement* result = nullptr;
    try {
      result = &m_loop.run(i, [this] { return m_stop.reason().has_value(); });
      progress.clear();
    } catch (const OutOfMemory& error) {
      progress.clear();
      say(stderr, "error: {}\n", error.what());
      m_out_of_memory = true;
    }
    return result;
  }

  void count(const Measurement& result) {
    m_failed_check |= result.status == CaseStatus::failed_check;
    m_failed |= result.status == CaseStatus::error;
    m_ran |= !result.samples.seconds.empty();
    m_check_bytes = std::max(m_check_bytes, result.check_bytes);
    m_noise.add(result);
  }

  void print(const Measurement& result) {
    fmt::print("{}", m_report.row(measured_values(result), result.message));
    std::fflush(stdout);
  }

  int leave_unfinished() {
    m_file.checkpoint();
    say(m_log, "stopped ({}); the finished cases are in {}, and --resume goes on with them\n",
        m_stopped.value_or("out of memory"), m_file.part_path().string());
    return m_out_of_memory ? exit_out_of_memory : exit_stopped;
  }

  int finish() {
    m_file.finish();
    say(m_log, "results: {}\n", m_file.path().string());
    if (m_failed_check) return exit_check;
    if (m_failed) return exit_failure;
    if (m_ran) return exit_ok;
    say(stderr, "error: {}\n", no_case_ran);
    return exit_nothing;
  }

  const CaseLoop& m_loop;
  ResultFile& m_file;
  const std::size_t m_scratch_bytes;
  const StopRequest m_stop;
  std::FILE* m_log;
  NoiseWatch m_noise;
  Report m_report;
  bool m_failed_check = false, m_failed = false, m_out_of_memory = false, m_ran = false;
  std::size_t m_check_bytes = 0;
  std::optional<std::string> m_stopped;
};

}  // namespace

int run_cases(const CaseLoop& loop, const RunTable& run, const ProfileTable& profile, ResultFile& file) {
  if (loop.finished > loop.spaces.size())
    throw FileError(fmt::format("'{}' cannot be continued: it has {} cases, and the deck {}",
                                file.part_path().string(), loop.finished, loop.spaces.size()));
  if (profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
  Sweep sweep(loop, run, file);
  sweep.begin(profile.machine_limits);
  sweep.recall_finished();
  sweep.run_others();
  return sweep.end();
}

}  // namespace kformer::drivers
