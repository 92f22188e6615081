// SPDX-License-Identifier: MIT
#include "sweep/measurement_report.hpp"

#include <fmt/format.h>

#include <limits>

#include "sweep/measurement_tables.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

ReportValue number(double value, const char* format, double factor = 1) {
  return {value == value ? fmt::format(fmt::runtime(format), factor * value) : "-", value};
}

Tone tone_of(CaseStatus status) {
  switch (status) {
    case CaseStatus::ok:
      return Tone::good;
    case CaseStatus::failed_check:
    case CaseStatus::error:
      return Tone::bad;
    default:
      return Tone::doubtful;
  }
}

// Marked where noise decides.
ReportValue spread_value(const Measurement& m) {
  ReportValue value = number(spread_of(m), "{:.0f} %", 100);
  if (!noisy(m)) return value;
  value.shown = "! " + value.shown;
  value.tone = Tone::doubtful;
  return value;
}

}  // namespace

std::string shown_seconds(double seconds) {
  if (!(seconds > 0)) return "-";
  constexpr std::array units{"s", "ms", "us", "ns"};
  std::size_t unit = 0;
  for (; seconds < 0.9995 && unit + 1 < units.size(); ++unit) seconds *= 1000;
  return fmt::format("{:.{}f} {}", seconds, seconds >= 99.95 ? 0 : seconds >= 9.995 ? 1 : 2, units[unit]);
}

std::vector<ReportColumn> measured_columns() {
  return {{"median", "median_s", 7},   {"spread", "spread", 6},        {"", "p10_s"}, {"", "p90_s"},
          {"GFLOP/s", "flop_rate", 7}, {"limit", "share_of_limit", 5}, {"", "noisy"}, {"peak", "peak_bytes", 8},
          {"error", "max_rel_err", 7}, {"status", "status", 6, true}};
}

std::vector<ReportValue> measured_values(const Measurement& m) {
  const double median = m.samples.quantile(0.5);
  const bool timed = median > 0;
  const double p10 = timed ? m.samples.quantile(0.1) : none, p90 = timed ? m.samples.quantile(0.9) : none;
  const ReportValue peak = timed ? bytes_value(static_cast<std::int64_t>(m.peak_total)) : ReportValue{"-"};
  const std::string_view status = case_status_names[static_cast<std::size_t>(m.status)];
  return {{shown_seconds(median), timed ? median : none},
          spread_value(m),
          {"", p10},
          {"", p90},
          number(timed ? m.flops / median : none, "{:.1f}", 1e-9),
          number(timed ? share_of_limit(m) : none, "{:.0f} %", 100),
          {"", std::int64_t(noisy(m))},
          peak,
          number(m.max_rel_err, "{:.1e}"),
          {std::string(status), std::string(status), tone_of(m.status)}};
}

}  // namespace kformer::drivers
