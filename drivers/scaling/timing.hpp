// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "app/ranks.hpp"
#include "decks/engine/deck.hpp"
#include "measure/timing_samples.hpp"

namespace kformer::drivers {

/// Seconds of a call that waits for its end.
double seconds_of_call(const std::function<void()>& call);

/// Times a call that all ranks make together. They begin each sample together, and it lasts as long as that of the slowest.
/// \param team the ranks
/// \param call waits for its end; every rank makes it as often as the others
measure::Samples sample_together(Communicator& team, const TimingTable& timing,
                                 const std::function<void()>& call);

}  // namespace kformer::drivers
