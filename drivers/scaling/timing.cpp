// SPDX-License-Identifier: MIT
#include "scaling/timing.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "app/ranks.hpp"

namespace kformer::drivers {

namespace {

// Of some calls, on every rank.
std::vector<double> seconds_of_all(Communicator& team, const std::function<void()>& call, std::int64_t times) {
  gather(team, {}, "a sample");
  const double seconds = seconds_of_call([&] {
    for (std::int64_t i = 0; i < times; ++i) call();
  });
  return gather(team, std::span(&seconds, 1), "times");
}

}  // namespace

double seconds_of_call(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

measure::Samples TurnSamples::slowest() const {
  measure::Samples samples{.seconds = {}, .inner_iterations = inner_iterations};
  for (const auto& of_ranks : seconds) samples.seconds.push_back(std::ranges::max(of_ranks));
  return samples;
}

std::vector<double> TurnSamples::mean_of_first(std::int64_t ranks) const {
  std::vector<double> means;
  for (const auto& of_ranks : seconds)
    means.push_back(std::accumulate(of_ranks.begin(), of_ranks.begin() + ranks, 0.0) /
                    static_cast<double>(ranks));
  return means;
}

std::vector<TurnSamples> sample_in_turns(Communicator& team, const TimingTable& timing,
                                         const std::vector<std::function<void()>>& calls) {
  std::vector<TurnSamples> samples(calls.size());
  for (std::size_t c = 0; c < calls.size(); ++c) {
    double warm = 0;
    // The first call is slow: where a sample needs several, another one says how many.
    for (std::int64_t i = 0;
         i < std::max<std::int64_t>(1, timing.warmup) || (i == 1 && warm < timing.min_time_s); ++i)
      warm = std::ranges::max(seconds_of_all(team, calls[c], 1));
    if (warm > 0 && warm < timing.min_time_s)
      samples[c].inner_iterations = static_cast<std::int64_t>(timing.min_time_s / warm) + 1;
  }
  double total = 0;
  for (std::int64_t i = 0; i < timing.repeats; ++i) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      auto seconds = seconds_of_all(team, calls[c], samples[c].inner_iterations);
      total += std::ranges::max(seconds);
      for (double& s : seconds) s /= static_cast<double>(samples[c].inner_iterations);
      samples[c].seconds.push_back(std::move(seconds));
    }
    if (timing.max_time_s > 0 && total >= timing.max_time_s) break;
  }
  return samples;
}

}  // namespace kformer::drivers
