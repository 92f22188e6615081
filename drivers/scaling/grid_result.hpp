// SPDX-License-Identifier: MIT
#pragma once

#include <limits>
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
  GridIndex grid;       ///< all ranks
  KernelTimes times;    ///< of kernels
  Links links{};        ///< of exchanges
  double cores = 0;     ///< as of `SimulatedRanks`
  double seconds = 0;   ///< of a step
  double computed = 0;  ///< of them the first rank computes
  double bubble = 0;    ///< share in which equal stages wait for each other, by the formula
};

/// What the exchanges of a grid cost, mean of all ranks.
struct ExchangeCost {
  double seconds = 0;                                       ///< of a call
  double share = std::numeric_limits<double>::quiet_NaN();  ///< of the time of the call
  /// Of the same time, in which stages of a pipeline wait for each other.
  double bubble = std::numeric_limits<double>::quiet_NaN();
};

/// What a grid did.
struct GridResult {
  PlanParallelTable grid;       ///< which one
  Measurement measurement;      ///< samples, memory, how it ended
  std::int64_t tokens = 0;      ///< of one call, of all ranks
  std::vector<double> seconds;  ///< of a call on each rank, mean of all while communication was counted
  std::int64_t calls = 0;       ///< in that time
  std::vector<RankCalls> communication;  ///< in these calls
  ExchangeCost exchanges;                ///< by them
  std::vector<RankMemory> memory;        ///< of each rank
  std::optional<Simulation> simulation;  ///< of a step
};

}  // namespace kformer::drivers
