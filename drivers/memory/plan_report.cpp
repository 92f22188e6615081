// SPDX-License-Identifier: MIT
#include "memory/plan_report.hpp"

#include <array>
#include <utility>

namespace kformer::drivers {

namespace {

// In the order of their columns; what a class is called there.
constexpr std::array classes{
    std::pair{"weights", MemoryClass::weights},       std::pair{"grads", MemoryClass::gradients},
    std::pair{"optim.", MemoryClass::optimizer},      std::pair{"cache", MemoryClass::kv_cache},
    std::pair{"activ.", MemoryClass::activations},    std::pair{"work", MemoryClass::workspace},
    std::pair{"commun.", MemoryClass::communication}, std::pair{"io", MemoryClass::io}};

bool trains(const PlannedCase& c) { return c.point.purpose == PlanPurpose::train; }

std::int64_t signed_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

std::vector<ReportColumn> labels() {
  return {{"space", "execution_space", 0, true},
          {"purpose", "purpose", 0, true},
          {"budget", "available_bytes"},
          {"dtype", "dtype", 0, true},
          {"quantised", "weights", 0, true},
          {"kv_cache", "kv_cache", 0, true},
          {"prefill_chunk", "prefill_chunk"},
          {"recompute", "recompute", 0, true},
          {"batch", "batch"},
          {"context", "context"}};
}

// What does not matter for a purpose is empty. No conditional expression stands in the list: nvcc 13.0 crashes on it.
std::vector<ReportValue> point_of(const PlannedCase& c) {
  const MemoryCase& p = c.point;
  const auto where = [](bool matters, const ReportValue& value) { return matters ? value : ReportValue{""}; };
  ReportValue available{"unknown"};
  if (c.available) available = bytes_value(signed_bytes(*c.available));
  return {text_value(p.execution_space),
          text_value(name_of(p.purpose)),
          available,
          text_value(name_of(p.dtype)),
          text_value(name_of(p.weights)),
          where(!trains(c), text_value(name_of(p.kv_cache))),
          where(!trains(c), count_value(p.prefill_chunk)),
          where(trains(c), text_value(name_of(p.recompute))),
          count_value(p.batch),
          count_value(p.context)};
}

std::vector<ReportColumn> results() {
  std::vector<ReportColumn> columns;
  for (const auto& [heading, memory_class] : classes)
    columns.push_back({heading, std::string(to_string(memory_class)) + "_bytes"});
  columns.insert(columns.end(), {{"total", "predicted_bytes"},
                                 {"left", "left_bytes"},
                                 {"fits", "fits"},
                                 {"max ctx", "largest_context"},
                                 {"max b", "largest_batch"},
                                 {"", "recompute_share"}});
  return columns;
}

ReportValue largest(std::int64_t value) { return value < 0 ? ReportValue{"?"} : count_value(value); }

std::vector<ReportValue> values_of(const PlannedCase& c) {
  std::vector<ReportValue> values;
  const bool runs = c.unsupported.empty();
  for (const auto& [heading, memory_class] : classes) {
    const std::size_t bytes = c.forecast.bytes[static_cast<std::size_t>(memory_class)];
    values.push_back(!runs        ? ReportValue{"-"}
                     : bytes == 0 ? ReportValue{"0", std::int64_t(0)}
                                  : bytes_value(signed_bytes(bytes)));
  }
  values.push_back(runs ? bytes_value(signed_bytes(c.forecast.total)) : ReportValue{"-"});
  values.push_back(runs && c.available
                       ? bytes_value(signed_bytes(*c.available) - signed_bytes(c.forecast.bytes_in_space))
                       : ReportValue{runs ? "?" : "-"});
  ReportValue fits = text_value(!runs ? "unsupported" : !c.available ? "?" : c.fits() ? "yes" : "no");
  fits.tone = !runs ? Tone::doubtful : !c.available ? Tone::plain : c.fits() ? Tone::good : Tone::bad;
  values.push_back(fits);
  values.push_back(largest(c.largest_context));
  values.push_back(largest(c.largest_batch));
  const double share = c.forecast.recompute_share;
  values.push_back(trains(c) ? ReportValue{"", share} : ReportValue{""});
  return values;
}

}  // namespace

std::string plan_report(const std::vector<PlannedCase>& cases, ReportFormat format, bool colours, bool wraps) {
  std::vector<std::vector<ReportValue>> points, rows;
  std::vector<std::string> messages;
  for (const PlannedCase& c : cases) {
    points.push_back(point_of(c));
    rows.push_back(values_of(c));
    messages.push_back(c.unsupported);
  }
  return whole_report({format, colours, labels(), std::move(points), results(), wraps}, rows, messages);
}

}  // namespace kformer::drivers
