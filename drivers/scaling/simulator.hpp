// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

/// \file
/// Ranks that compute and send messages, simulated event by event. Free of Kokkos.

namespace kformer::drivers {

/// What a rank does next.
struct SimulatedOperation {
  /// Computing; an exchange with all ranks of a group, which ends for all at once; a message.
  enum class Kind { compute, exchange, send, receive };
  Kind kind = Kind::compute;
  double seconds = 0;  ///< of a core; of an exchange once all have come; of a `receive` once there is a message
  int group = 0;       ///< of an exchange: which of the groups of the rank
  int peer = 0;        ///< of a message: the other rank, counted from this one
  int channel = 0;     ///< of a message: those on different ones do not wait for each other
};

/// Operations in their order. Ranks that do the same share them.
using SimulatedProgram = std::vector<SimulatedOperation>;

/// Ranks with their programs.
struct SimulatedRanks {
  std::vector<std::shared_ptr<const SimulatedProgram>> programs;  ///< of each rank
  std::vector<std::vector<int>>
      groups;  ///< of each rank the numbers of its groups: all with one number are one group
  double cores =
      0;  ///< that ranks share: k ranks that compute at a time each have min(1, cores / k); 0: one each
};

/// What happened.
struct SimulatedTime {
  double seconds = 0;            ///< until the last rank has ended
  std::vector<double> computed;  ///< of each rank: seconds in which it computed, longer where cores were shared
};

/// Runs the programs. A message begins to travel when the receiver waits for it. Its sender goes on at once, and waits at
/// the next message to the same rank until this one has been received. A wait for nobody is an error of the programs.
/// \throws Error if ranks wait for each other for ever
SimulatedTime simulate(const SimulatedRanks& ranks);

}  // namespace kformer::drivers
