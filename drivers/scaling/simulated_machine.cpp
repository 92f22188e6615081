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
  const double tensor = step.grid.tensor, rows = static_cast<double>(step.micro_batch.rows());
  const auto seconds = [&](bool backward) {
    return layer_flops(step.config, step.micro_batch, backward) / tensor / machine.flop_rate;
  };
  double elements = 0;
  for (const std::int64_t size : step.arrays.elements) elements += static_cast<double>(size);
  // Gradients are read twice; weights, two states, and the master copy of 16-bit weights are read and written.
  const auto stored = static_cast<double>(step.stored_bytes),
             computed = static_cast<double>(step.computed_bytes);
  const double bytes = 2 * computed + 2 * stored + 4 * computed + (stored < computed ? 2 * computed : 0);
  const double words = static_cast<double>(step.config.hidden_size * step.config.vocab_size);
  return {.forward = seconds(false),
          .backward = seconds(true),
          .ends = 6 * rows * words / tensor / machine.flop_rate,
          .update = elements * bytes / machine.memory_bandwidth};
}

Links links_on(const SimulatedMachineTable& machine, const GridIndex& grid) {
  const auto link = [&](int size, int span) {
    const bool inside = span <= machine.ranks_per_node;
    const double per_byte = 1 / (inside ? machine.bandwidth_inside : machine.bandwidth_between);
    return Link{.latency = (size - 1) * (inside ? machine.latency_inside_s : machine.latency_between_s),
                .seconds_per_byte = per_byte,
                .seconds_per_summed = per_byte + 2 / machine.memory_bandwidth};
  };
  const int within = grid.context * grid.tensor, all = grid.data * within;
  return {link(grid.context, within), link(grid.tensor, grid.tensor), link(grid.data * grid.context, all)};
}

}  // namespace kformer::drivers
