// SPDX-License-Identifier: MIT
#include "scaling/timing.hpp"

#include <algorithm>
#include <chrono>

namespace kformer::drivers {

double seconds_of_call(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

measure::Samples sample_together(Communicator& team, const TimingTable& timing,
                                 const std::function<void()>& call) {
  const auto slowest = [&](double seconds) {
    return std::ranges::max(gather(team, std::span(&seconds, 1), "times"));
  };
  double warm = 0, total = 0;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(1, timing.warmup); ++i)
    warm = slowest(seconds_of_call(call));
  measure::Samples samples;
  if (warm > 0 && warm < timing.min_time_s)
    samples.inner_iterations = static_cast<std::int64_t>(timing.min_time_s / warm) + 1;
  for (std::int64_t i = 0; i < timing.repeats; ++i) {
    gather(team, {}, "a sample");
    const double seconds = slowest(seconds_of_call([&] {
      for (std::int64_t k = 0; k < samples.inner_iterations; ++k) call();
    }));
    samples.seconds.push_back(seconds / static_cast<double>(samples.inner_iterations));
    total += seconds;
    if (timing.max_time_s > 0 && total >= timing.max_time_s) break;
  }
  return samples;
}

}  // namespace kformer::drivers
