// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>

#include "measure/timing_samples.hpp"

namespace kformer::measure {

/// Seconds that `count` calls of `launch` take, from an idle instance to an idle instance.
template <class Exec, class Launch>
double seconds_of(const Exec& exec, Launch& launch, std::int64_t count = 1) {
  exec.fence("kformer::measure::seconds_of: before");
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) launch();
  exec.fence("kformer::measure::seconds_of: after");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Takes samples of `launch`, of which the caller's last call took `warm_seconds`. If that call was a slow one, the first sample
/// is too short: it does not count, and the next one has as many calls as it asks for. `stop()` is called between samples.
template <class Exec, class Launch, class Stop>
Samples sample(const Exec& exec, const SamplingPlan& plan, double warm_seconds, Launch launch, Stop stop) {
  Samples samples;
  if (warm_seconds > 0 && warm_seconds < plan.min_time_s)
    samples.inner_iterations = static_cast<std::int64_t>(plan.min_time_s / warm_seconds) + 1;
  double total = 0;
  bool ends = false;
  while (std::ssize(samples.seconds) < plan.repeats && !ends) {
    const double seconds = seconds_of(exec, launch, samples.inner_iterations);
    total += seconds;
    ends = (plan.max_time_s > 0 && total >= plan.max_time_s) || stop();
    const bool too_short = samples.seconds.empty() && seconds < 0.9 * plan.min_time_s;
    if (too_short && !ends) {
      const double more = std::clamp(plan.min_time_s / seconds, 1.0, 100.0);
      samples.inner_iterations =
          static_cast<std::int64_t>(more * static_cast<double>(samples.inner_iterations)) + 1;
    } else {
      samples.seconds.push_back(seconds / static_cast<double>(samples.inner_iterations));
    }
  }
  return samples;
}

}  // namespace kformer::measure
