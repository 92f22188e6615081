// SPDX-License-Identifier: MIT
#include "sweep/noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

namespace kformer::drivers {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

// Other programs' share of the cores from which on they matter.
constexpr double idle_share = 0.25;

double change(double a, double b) {
  const double larger = std::max(a, b);
  return larger > 0 ? std::fabs(a - b) / larger : 0;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// In registers: the arrays of the other limits would add to the memory of the run.
double flop_rate(const std::string& space) { return measure::case_limits(space, DType::f32, 0).flop_rate; }

}  // namespace

double spread_of(const Measurement& m) {
  if (m.samples.seconds.size() < 2) return none;
  return (m.samples.quantile(0.9) - m.samples.quantile(0.1)) / m.samples.quantile(0.5);
}

bool noisy(const Measurement& m) {
  const std::vector<double>& seconds = m.samples.seconds;
  const bool one_short_sample = seconds.size() == 1 && seconds.front() < shortest_lone_sample;
  return one_short_sample || spread_of(m) > noisy_spread || m.limits_change > noisy_change ||
         m.core_wait_share > noisy_wait;
}

double change_between(const measure::CaseLimits& a, const measure::CaseLimits& b) {
  return std::max(change(a.flop_rate, b.flop_rate), change(a.bandwidth, b.bandwidth));
}

double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : none;
}

std::string noise_text(const NoiseReport& r) {
  std::string text;
  if (r.noisy_cases > 0)
    text += fmt::format(
        "noise: {} of {} cases (marked !) scatter by more than {:.0f} %, or their limits changed by more,\n"
        "       or they have a single short sample, or their threads waited for cores that were busy\n",
        r.noisy_cases, r.cases, 100 * noisy_spread);
  if (r.load_before > idle_share * r.cores)
    text += fmt::format("noise: before the run others had a load of {:.1f} on {} core{}\n", r.load_before,
                        r.cores, r.cores == 1 ? "" : "s");
  for (const auto& [space, ratio] : r.changes)
    if (std::fabs(ratio - 1) > noisy_change)
      text += fmt::format("noise: {} has {:.2f} x the multiply-adds per second that it had at the start\n",
                          space, ratio);
  return text.empty() ? text : text + "noise: repeat the run on an idle machine before you trust its times\n";
}

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
