// SPDX-License-Identifier: MIT
#include "sweep/noise_watch.hpp"

#include <algorithm>
#include <thread>

namespace kformer::drivers {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// In registers: the arrays of the other limits would add to the memory of the run.
double flop_rate(const std::string& space) { return measure::case_limits(space, DType::f32, 0).flop_rate; }

}  // namespace

NoiseWatch::NoiseWatch() {
  m_report.load_before = load_average();
  m_report.cores = std::max(1u, std::thread::hardware_concurrency());
}

void NoiseWatch::begin(
    const std::set<std::string>& spaces,
    const std::function<void(const std::string& space, const measure::MachineLimits& limits)>& measured) {
  const auto start = Clock::now();
  for (const std::string& space : spaces) {
    const measure::MachineLimits limits = measure::machine_limits(space);
    m_before[space] = flop_rate(space);
    measured(space, limits);
  }
  m_effort = seconds_since(start);
  m_begin = Clock::now();
}

void NoiseWatch::add(const Measurement& result) {
  m_report.cases += !result.samples.seconds.empty();
  m_report.noisy_cases += noisy(result);
}

std::string NoiseWatch::end() {
  if (seconds_since(m_begin) > m_effort)
    for (const auto& [space, rate] : m_before)
      if (rate > 0) m_report.changes.emplace_back(space, flop_rate(space) / rate);
  return noise_text(m_report);
}

}  // namespace kformer::drivers
