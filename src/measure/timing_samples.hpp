// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kformer::measure {

/// Number and duration of samples.
struct SamplingPlan {
  std::int64_t repeats = 10;  ///< samples
  double min_time_s = 0.01;   ///< a sample repeats calls for this long
  double max_time_s = 0;      ///< stop after this time, but not before the first sample; 0 = never
};

/// The `p`-quantile of `values` by linear interpolation; 0.5 is the median; 0 if there is no value.
inline double quantile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double at = p * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

/// What was measured.
struct Samples {
  std::vector<double> seconds;        ///< per call, one entry per sample, in the order they were taken
  std::int64_t inner_iterations = 1;  ///< calls in one sample

  /// The `p`-quantile of the seconds.
  double quantile(double p) const { return measure::quantile(seconds, p); }
};

}  // namespace kformer::measure
