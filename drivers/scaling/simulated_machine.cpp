// SPDX-License-Identifier: MIT
#include "scaling/simulated_machine.hpp"

#include <unistd.h>

#include <algorithm>

#include "kformer/model/flops.hpp"
#include "measure/spaces.hpp"

namespace kformer::drivers {

double cores_of_machine(const std::string& space) {
  const int threads =
      measure::on_space(space, []<class Exec>(std::type_identity<Exec>) { return Exec().concurrency(); });
  return static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)) / std::max(1, threads);
}

bool shares_cores(const std::string& space) { return measure::runs_on_host(space); }

KernelTimes kernel_times_on(const SimulatedMachineTable& machine, const StepShape& step) {
  const double ranks = step.grid.tensor * step.grid.context,
               rows = static_cast<double>(step.micro_batch.rows());
  const auto seconds = [&](bool backward) {
    return layer_flops(step.config, step.micro_batch, backward) / ranks / machine.flop_rate;
  };
  // Gradients are read twice; weights, two states, and the master copy of 16-bit weights are read and written.
  const auto stored = static_cast<double>(step.stored_bytes),
             computed = static_cast<double>(step.computed_bytes);
  const double bytes = 2 * computed + 2 * stored + 4 * computed + (stored < computed ? 2 * computed : 0);
  const double words = static_cast<double>(step.config.hidden_size * step.config.vocab_size);
  const double updaters = step.zero > 0 ? ranks_along(CallAxis::replicas, step.grid) : 1;
  const double forward = seconds(false), backward = seconds(true);
  // Forward is products and attention, backward twice the products and 2.5 times attention.
  return {.forward = forward,
          .backward = backward,
          .weights = 5 * forward - 2 * backward,
          .ends = 6 * rows * words / ranks / machine.flop_rate,
          .update = bytes / machine.memory_bandwidth / updaters};
}

Links links_on(const SimulatedMachineTable& machine, const GridIndex& grid) {
  const auto link = [&](int size, int span) {
    const bool inside = span <= machine.ranks_per_node;
    const double per_byte = 1 / (inside ? machine.bandwidth_inside : machine.bandwidth_between);
    return Link{.latency = (size - 1) * (inside ? machine.latency_inside_s : machine.latency_between_s),
                .seconds_per_byte = per_byte,
                .seconds_per_summed = per_byte + 2 / machine.memory_bandwidth};
  };
  const int within = grid.context * grid.tensor, stage = grid.data * within, all = grid.pipeline * stage;
  Links links;
  for (const auto& [axis, span] : {std::pair{CallAxis::context, within},
                                   {CallAxis::tensor, grid.tensor},
                                   {CallAxis::replicas, stage},
                                   {CallAxis::stages, all},
                                   {CallAxis::ends, all},
                                   {CallAxis::neighbours, std::min(2 * stage, all)}})
    links[static_cast<std::size_t>(axis)] = link(ranks_along(axis, grid), span);
  return links;
}

}  // namespace kformer::drivers
