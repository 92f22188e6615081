// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <vector>

#include "decks/engine/deck.hpp"
#include "kformer/parallel/communicator.hpp"
#include "measure/timing_samples.hpp"

namespace kformer::drivers {

/// Seconds of a call that waits for its end.
double seconds_of_call(const std::function<void()>& call);

/// Samples of one of several calls.
struct TurnSamples {
  std::vector<std::vector<double>> seconds;  ///< of a call, of every rank, in every sample
  std::int64_t inner_iterations = 1;         ///< calls in one sample

  /// Of the slowest rank.
  measure::Samples slowest() const;
  /// The mean of the first ranks in each sample.
  std::vector<double> mean_of_first(std::int64_t ranks) const;
};

/// Times calls that all ranks make together, in turns, so that what disturbs one disturbs the others, too. The ranks begin
/// each sample together.
/// \param team  the ranks
/// \param calls each waits for its end; every rank makes it as often as the others
std::vector<TurnSamples> sample_in_turns(Communicator& team, const TimingTable& timing,
                                         const std::vector<std::function<void()>>& calls);

}  // namespace kformer::drivers
