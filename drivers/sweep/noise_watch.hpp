// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "measure/machine.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {

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
