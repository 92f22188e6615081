// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "measure/machine.hpp"
#include "sweep/measurement.hpp"

/// \file
/// Whether what was measured is the program, or what else the machine did.

namespace kformer::drivers {

/// Samples that scatter more than this are noise: (p90 − p10) / median.
inline constexpr double noisy_spread = 0.25;
/// So are cases during which the limits of the machine changed by more than this.
inline constexpr double noisy_change = 0.25;

/// So are cases in which threads waited longer than this for a core, together and relative to the time of the samples. A
/// steady load slows all samples alike, so that they do not scatter.
inline constexpr double noisy_wait = 0.25;

/// So are cases with a single sample shorter than this, in seconds: nothing says what else it holds.
inline constexpr double shortest_lone_sample = 0.1;

/// How much the samples of a case scatter: (p90 − p10) / median; NaN of fewer than two samples, which do not tell.
double spread_of(const Measurement& measurement);

/// Whether noise decides the time of a case: its samples scatter, or there is only a short one, or the limits of the machine
/// changed during it, or its threads waited for cores.
bool noisy(const Measurement& measurement);

/// How far two limits are apart, relative to the larger one, whichever of rate and bandwidth is further.
double change_between(const measure::CaseLimits& a, const measure::CaseLimits& b);

/// Processes that wanted to run on the host in the last minute; NaN where the system does not say.
double load_average();

/// What is known of noise at the end of a run.
struct NoiseReport {
  std::size_t cases = 0, noisy_cases = 0;  ///< that were timed
  double load_before = 0;                  ///< before this program took its share
  unsigned cores = 1;                      ///< of the host
  std::vector<std::pair<std::string, double>> changes =
      {};  ///< by space: limits at the end over those at the beginning
};

/// The sentences of a report; empty if there is nothing to say.
std::string noise_text(const NoiseReport& report);

/// Watches what else the machine does during a run: its load before, and its limits before and after.
class NoiseWatch {
 public:
  /// Takes the load of the moment: make it before the program takes its share.
  NoiseWatch();

  /// Measures the limits of each space, and hands them on.
  void begin(
      const std::set<std::string>& spaces,
      const std::function<void(const std::string& space, const measure::MachineLimits& limits)>& measured);

  /// Counts a case that was measured.
  void add(const Measurement& result);

  /// What disturbed the run, in sentences. Measures limits again, unless that takes longer than the run did.
  std::string end();

  /// Processes that wanted to run before this one.
  double load() const { return m_report.load_before; }

 private:
  NoiseReport m_report;
  std::map<std::string, double> m_before;  // FLOP/s by space
  std::chrono::steady_clock::time_point m_begin;
  double m_effort = 0;  // seconds that the limits took
};

}  // namespace kformer::drivers
