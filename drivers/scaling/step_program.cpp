// SPDX-License-Identifier: MIT
#include "scaling/step_program.hpp"

#include <string_view>

namespace kformer::drivers {

namespace {

class Program {
 public:
  Program(const std::vector<Calls>& calls, const Links& links) : m_calls(calls), m_links(links) {}

  void compute(double seconds) {
    if (seconds > 0) m_operations.push_back({.kind = SimulatedOperation::Kind::compute, .seconds = seconds});
  }
  // One of the calls that have these names.
  void exchange(std::string_view operation, std::string_view region) {
    for (const Calls& c : m_calls)
      if (c.operation == operation && c.region == region)
        m_operations.push_back(
            {.kind = SimulatedOperation::Kind::exchange,
             .seconds = seconds_of(c, m_links[static_cast<std::size_t>(c.axis)]) / static_cast<double>(c.calls),
             .group = static_cast<int>(c.axis)});
  }
  SimulatedProgram take() { return std::move(m_operations); }

 private:
  const std::vector<Calls>& m_calls;
  const Links& m_links;
  SimulatedProgram m_operations;
};

// A layer has two halves, attention and MLP, which are taken to last as long.
void add_layer_forward(const KernelTimes& times, Program& program) {
  program.exchange("all_gather", "keys and values");
  program.compute(times.forward / 2);
  program.exchange("all_reduce", "activations");
  program.compute(times.forward / 2);
  program.exchange("all_reduce", "activations");
}

void add_layer_backward(const KernelTimes& times, Program& program) {
  program.compute(times.backward / 2);
  program.exchange("all_reduce", "gradients of activations");
  program.exchange("all_gather", "keys and values");
  program.compute(times.backward / 2);
  program.exchange("reduce_scatter", "gradients of keys and values");
  program.exchange("all_reduce", "gradients of activations");
}

// The numbers of the groups of a rank: those of one axis follow those of the one before.
std::vector<int> groups_of(int rank, const GridIndex& grid) {
  const int tensor = rank % grid.tensor, context = rank / grid.tensor % grid.context,
            data = rank / grid.tensor / grid.context, all = grid.data * grid.context * grid.tensor;
  return {data * grid.tensor + tensor, all + data * grid.context + context, 2 * all + tensor};
}

}  // namespace

double seconds_of(const Calls& calls, const Link& link) {
  const auto count = static_cast<double>(calls.calls), bytes = static_cast<double>(calls.bytes);
  if (calls.operation == "all_reduce")
    return 2 * count * link.latency + bytes / 2 * (link.seconds_per_byte + link.seconds_per_summed);
  const bool sums = calls.operation == "reduce_scatter" || calls.operation == "reduce_shards";
  return count * link.latency + bytes * (sums ? link.seconds_per_summed : link.seconds_per_byte);
}

SimulatedRanks step_program(const StepShape& step, const KernelTimes& times, const Links& links, double cores) {
  const std::vector<Calls> calls = step_calls(step);
  const double context = step.grid.context;
  const KernelTimes own{times.forward / context, times.backward / context, times.ends / context, times.update};
  const std::int64_t layers = step.config.num_hidden_layers;
  Program program(calls, links);
  program.exchange("gather_values", "counts");
  for (std::int64_t m = 0; m < step.micro_batches; ++m) {
    program.exchange("all_reduce", "embedding");
    for (std::int64_t l = 0; l < layers; ++l) add_layer_forward(own, program);
    program.exchange("all_gather", "loss");
    program.compute(own.ends);
    program.exchange("all_reduce", "gradients of activations");
    for (std::int64_t l = 0; l < layers; ++l) add_layer_backward(own, program);
    if (step.zero == 2) program.exchange("reduce_shards", "gradients");
  }
  program.exchange("all_reduce", "gradients");
  if (step.zero < 2) program.exchange("reduce_shards", "gradients");
  program.exchange("gather_values", "norm");
  const int replicas = step.grid.data * step.grid.context;
  program.compute(step.zero > 0 ? own.update / replicas : own.update);
  program.exchange("gather_shards", step.zero > 0 ? "weights" : "gradients");
  program.exchange("gather_values", "losses");

  const auto shared = std::make_shared<const SimulatedProgram>(program.take());
  SimulatedRanks ranks{.programs = {}, .groups = {}, .cores = cores};
  for (int rank = 0; rank < replicas * step.grid.tensor; ++rank) {
    ranks.programs.push_back(shared);
    ranks.groups.push_back(groups_of(rank, step.grid));
  }
  return ranks;
}

}  // namespace kformer::drivers
