// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "decks/scaling/scaling_deck.hpp"
#include "scaling/step_program.hpp"

namespace kformer::drivers {

/// Cores of this machine over the threads of a rank, on a space of the host.
double cores_of_machine(const std::string& space);

/// Whether a space computes on cores, which ranks may share.
bool shares_cores(const std::string& space);

/// Times of kernels on a machine that a deck describes: products and attention at its rate, the optimizer by the bytes that
/// it reads and writes.
KernelTimes kernel_times_on(const SimulatedMachineTable& machine, const StepShape& step);

/// Its links: those of a node where all ranks of a group are neighbours in one, and else those between nodes. An exchange
/// among n ranks has n − 1 latencies, as a ring has.
Links links_on(const SimulatedMachineTable& machine, const GridIndex& grid);

}  // namespace kformer::drivers
