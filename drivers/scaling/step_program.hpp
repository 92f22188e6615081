// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <functional>

#include "scaling/simulator.hpp"
#include "scaling/traffic.hpp"

/// \file
/// A step of training as the simulator takes it.

namespace kformer::drivers {

/// Seconds of one core for what a rank computes.
struct KernelTimes {
  double forward = 0, backward = 0;  ///< of a layer in a micro-batch
  double weights = 0;                ///< of `backward`, if gradients of weights are work of their own
  double ends = 0;                   ///< embedding, last norm, head and loss in a micro-batch
  double update = 0;                 ///< norm and optimizer, of one element of a weight of the stage
};

/// Exchanges among some ranks: each sends its messages to all others at once.
struct Link {
  double latency = 0;             ///< s, of an exchange
  double seconds_per_byte = 0;    ///< that a rank sends
  double seconds_per_summed = 0;  ///< the same where what arrives is summed
};

/// The links along each `CallAxis`.
using Links = std::array<Link, call_axes>;

/// Seconds of some calls of a step once all ranks are there: an operation is one exchange, or two of an `all_reduce`, of
/// which the first is summed; a `shift` is one of the messages that each of `ranks` sends to the others in an exchange.
double seconds_of(const Calls& calls, const Link& link, int ranks);

/// The programs of all ranks in a step. The last stage has the time of the ends: the head's products take most of it.
/// \param stages  of the first rank of each stage; the others of a stage send as much
/// \param times   of kernels
/// \param links   of exchanges
/// \param cores   as of `SimulatedRanks`
SimulatedRanks step_program(const std::vector<StepShape>& stages, const KernelTimes& times, const Links& links,
                            double cores);

/// The share of a step in which stages that need as long as each other wait for each other: its formula is in
/// docs/parallel.md.
double bubble_of(const StepShape& step, const KernelTimes& times);

}  // namespace kformer::drivers
