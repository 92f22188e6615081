// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "decks/scaling/scaling_deck.hpp"
#include "kformer/parallel/communication_log.hpp"
#include "scaling/step_program.hpp"
#include "sweep/measurement.hpp"

namespace kformer::drivers {

/// The calls of a rank of one operation in one region, while it was timed.
struct RankCalls : CommunicationCount {
  std::int64_t rank = 0;             ///< which one
  std::uint64_t expected_bytes = 0;  ///< by the formulae
};

/// The memory of a rank.
struct RankMemory {
  std::uint64_t predicted = 0, peak = 0;  ///< by counting, and as it was booked
};

/// What a simulation is made from, and what it says.
struct Simulation {
  StepShape step;       ///< of the first rank
  KernelTimes times;    ///< of kernels
  Links links{};        ///< of exchanges
  double cores = 0;     ///< as of `SimulatedRanks`
  double seconds = 0;   ///< of a step
  double computed = 0;  ///< of them the first rank computes
};

/// What a grid did.
struct GridResult {
  PlanParallelTable grid;                ///< which one
  Measurement measurement;               ///< samples, memory, how it ended
  std::int64_t tokens = 0;               ///< of one call, of all ranks
  std::int64_t calls = 0;                ///< that were timed
  std::vector<RankCalls> communication;  ///< in these calls
  std::vector<RankMemory> memory;        ///< of each rank
  std::optional<Simulation> simulation;  ///< of a step

  /// Mean seconds of a rank in exchanges, for each call.
  double communication_seconds() const {
    double sum = 0;
    for (const RankCalls& c : communication) sum += c.seconds;
    return calls > 0 ? sum / static_cast<double>(calls) / static_cast<double>(grid.ranks()) : 0;
  }
};

}  // namespace kformer::drivers
