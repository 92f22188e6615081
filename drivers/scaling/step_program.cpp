// SPDX-License-Identifier: MIT
#include "scaling/step_program.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

namespace kformer::drivers {

namespace {

// What stages send: states to the next one, their gradients to the one before.
enum class Message { states, gradients };

class Program {
 public:
  Program(const std::vector<Calls>& calls, const Links& links, const GridIndex& grid)
      : m_calls(calls), m_links(links), m_grid(grid) {}

  void compute(double seconds) {
    if (seconds > 0) m_operations.push_back({.kind = SimulatedOperation::Kind::compute, .seconds = seconds});
  }
  // `count` of the calls that have these names, or all of a step.
  void exchange(std::string_view operation, std::string_view region, std::int64_t count = 1) {
    for (const Calls& c : m_calls)
      if (c.operation == operation && c.region == region)
        for (std::int64_t i = 0; i < std::min(count, c.calls); ++i)
          m_operations.push_back({.kind = SimulatedOperation::Kind::exchange,
                                  .seconds = seconds_of_one(c),
                                  .group = static_cast<int>(c.axis)});
  }
  // A sum of states: all of it for each rank, or its own tokens.
  void sum(std::string_view region) {
    exchange("all_reduce", region);
    exchange("reduce_scatter", region);
  }
  // Of keys and values in a layer: gathered, or in the shifts of a ring, which wait as the messages of MPI do.
  void exchange_keys(std::int64_t shifts) {
    exchange("all_gather", "keys and values");
    exchange("shift", "keys and values", shifts);
  }
  void exchange_gradients_of_keys(std::int64_t shifts) {
    exchange("reduce_scatter", "gradients of keys and values");
    exchange("shift", "gradients of keys and values", shifts);
  }
  void exchange_all(std::string_view operation, std::string_view region) {
    exchange(operation, region, std::numeric_limits<std::int64_t>::max());
  }
  void send(int peer, Message message) {
    m_operations.push_back(
        {.kind = SimulatedOperation::Kind::send, .peer = peer, .channel = static_cast<int>(message)});
  }
  // As long a message as those that this rank sends.
  void receive(int peer, Message message) {
    for (const Calls& c : m_calls)
      if (c.axis == CallAxis::neighbours)
        return m_operations.push_back({.kind = SimulatedOperation::Kind::receive,
                                       .seconds = seconds_of_one(c),
                                       .peer = peer,
                                       .channel = static_cast<int>(message)});
  }
  SimulatedProgram take() { return std::move(m_operations); }

 private:
  double seconds_of_one(const Calls& c) const {
    return seconds_of(c, m_links[static_cast<std::size_t>(c.axis)], ranks_along(c.axis, m_grid)) /
           static_cast<double>(c.calls);
  }

  const std::vector<Calls>& m_calls;
  const Links& m_links;
  const GridIndex& m_grid;
  SimulatedProgram m_operations;
};

// A layer has two halves, attention and MLP, which are taken to last as long.
void add_layer_forward(const StepShape& step, const KernelTimes& times, Program& program) {
  program.exchange_keys(step.grid.context - 1);
  for (int half = 0; half < 2; ++half) {
    program.exchange("all_gather", "tokens");
    program.compute(times.forward / 2);
    program.sum("activations");
  }
}

void add_layer_backward(const StepShape& step, const KernelTimes& times, Program& program) {
  const bool splits = splits_backward(step.pipeline.schedule);
  for (int half = 0; half < 2; ++half) {
    // Those of the gradients, and of the inputs for the gradients of weights.
    program.exchange("all_gather", "tokens", splits ? 1 : 2);
    if (half == 1) program.exchange_keys(step.grid.context - 1);
    program.compute((times.backward - (splits ? times.weights : 0)) / 2);
    if (half == 1) program.exchange_gradients_of_keys(step.grid.context - 1);
    program.sum("gradients of activations");
  }
}

void add_weights(const KernelTimes& times, Program& program) {
  program.exchange("all_gather", "tokens", 4);
  program.compute(times.weights);
}

// What a stage does in a step.
class Stage {
 public:
  Stage(const StepShape& step, const KernelTimes& times, const Links& links)
      : m_step(step), m_times(times), m_calls(step_calls(step)), m_program(m_calls, links, step.grid) {}

  SimulatedProgram program() {
    m_program.exchange_all("gather_values", "counts");
    for (const PipelineTask& task : pipeline_work(m_step.pipeline, m_step.place.pipeline, m_step.micro_batches))
      add(task);
    m_program.exchange_all("gather_values", "stage losses");
    m_program.exchange_all("all_reduce", "gradients");
    if (m_step.zero < 2)
      m_program.exchange_all("reduce_shards", "gradients");
    else
      reduce(std::ranges::count(m_step.arrays.tied, true));
    for (const char* region : {"norm", "stage norm"}) m_program.exchange_all("gather_values", region);
    m_program.compute(m_times.update * elements());
    for (const char* region : {"weights", "gradients"}) m_program.exchange_all("gather_shards", region);
    m_program.exchange_all("gather_values", "losses");
    return m_program.take();
  }

 private:
  void add(const PipelineTask& task) {
    switch (task.work) {
      case PipelineWork::forward:
        return forward(task.part);
      case PipelineWork::backward:
        return backward(task.part);
      case PipelineWork::weights:
        for_layers(task.part, [&] { add_weights(m_times, m_program); });
        reduce(layers_of(m_step, task.part));
    }
  }

  void forward(int part) {
    if (is_first_part(m_step, part))
      m_program.sum("embedding");
    else
      m_program.receive(neighbour(-1), Message::states);
    for_layers(part, [&] { add_layer_forward(m_step, m_times, m_program); });
    if (!is_last_part(m_step, part)) m_program.send(neighbour(1), Message::states);
  }

  void backward(int part) {
    if (is_last_part(m_step, part)) {
      for (const char* region : {"tokens", "loss"}) m_program.exchange("all_gather", region);
      m_program.compute(m_times.ends);
      m_program.sum("gradients of activations");
    } else {
      m_program.receive(neighbour(1), Message::gradients);
    }
    for_layers(part, [&] { add_layer_backward(m_step, m_times, m_program); });
    if (is_first_part(m_step, part))
      m_program.exchange("all_gather", "tokens");
    else
      m_program.send(neighbour(-1), Message::gradients);
    reduce(is_last_part(m_step, part) + (is_first_part(m_step, part) && !two_have_the_embedding()));
    if (!splits_backward(m_step.pipeline.schedule)) reduce(layers_of(m_step, part));
  }

  // Groups of gradients, with ZeRO 2 after each micro-batch.
  void reduce(std::int64_t groups) {
    if (m_step.zero == 2) m_program.exchange("reduce_shards", "gradients", groups);
  }
  bool two_have_the_embedding() const { return m_step.grid.pipeline > 1 && m_step.config.tie_word_embeddings; }

  template <class F>
  void for_layers(int part, F f) const {
    for (std::int64_t l = 0; l < layers_of(m_step, part); ++l) f();
  }

  // Counted from this rank. Stages are the slowest axis, and the last is in front of the first.
  int neighbour(int step) const {
    const GridIndex& grid = m_step.grid;
    const int stage = (m_step.place.pipeline + step + grid.pipeline) % grid.pipeline;
    return (stage - m_step.place.pipeline) * grid.data * grid.context * grid.tensor;
  }

  double elements() const {
    double sum = 0;
    for (const std::int64_t size : m_step.arrays.elements) sum += static_cast<double>(size);
    return sum;
  }

  const StepShape& m_step;
  const KernelTimes& m_times;
  std::vector<Calls> m_calls;
  Program m_program;
};

// The number of a rank's group along each axis. Groups of one axis follow those of the one before, and each is named after
// the first place in it.
std::vector<int> groups_of(const GridIndex& place, const GridIndex& grid) {
  const int all = grid.data * grid.context * grid.tensor * grid.pipeline;
  std::vector<int> groups;
  for (std::size_t axis = 0; axis < call_axes; ++axis) {
    GridIndex first = place;
    const auto call = static_cast<CallAxis>(axis);
    if (call == CallAxis::context || call == CallAxis::replicas) first.context = 0;
    if (call == CallAxis::replicas) first.data = 0;
    if (call == CallAxis::tensor) first.tensor = 0;
    if (call == CallAxis::stages || (call == CallAxis::ends && place.pipeline + 1 == grid.pipeline))
      first.pipeline = 0;
    groups.push_back(static_cast<int>(axis) * all +
                     ((first.pipeline * grid.data + first.data) * grid.context + first.context) * grid.tensor +
                     first.tensor);
  }
  return groups;
}

}  // namespace

double seconds_of(const Calls& calls, const Link& link, int ranks) {
  const auto count = static_cast<double>(calls.calls), bytes = static_cast<double>(calls.bytes);
  if (calls.operation == "shift") return count * link.latency / (ranks - 1) + bytes * link.seconds_per_byte;
  if (calls.operation == "all_reduce")
    return 2 * count * link.latency + bytes / 2 * (link.seconds_per_byte + link.seconds_per_summed);
  const bool sums = calls.operation == "reduce_scatter" || calls.operation == "reduce_shards";
  return count * link.latency + bytes * (sums ? link.seconds_per_summed : link.seconds_per_byte);
}

SimulatedRanks step_program(const std::vector<StepShape>& stages, const KernelTimes& times, const Links& links,
                            double cores) {
  SimulatedRanks ranks{.programs = {}, .groups = {}, .cores = cores};
  for (const StepShape& stage : stages) {
    const auto shared = std::make_shared<const SimulatedProgram>(Stage(stage, times, links).program());
    GridIndex place = stage.place;
    for (place.data = 0; place.data < stage.grid.data; ++place.data)
      for (place.context = 0; place.context < stage.grid.context; ++place.context)
        for (place.tensor = 0; place.tensor < stage.grid.tensor; ++place.tensor) {
          ranks.programs.push_back(shared);
          ranks.groups.push_back(groups_of(place, stage.grid));
        }
  }
  return ranks;
}

double bubble_of(const StepShape& step, const KernelTimes& times) {
  const double weights = splits_backward(step.pipeline.schedule) ? times.weights : 0;
  const PipelineTimes part{times.forward, times.backward - weights, weights};
  const double work =
      static_cast<double>(step.micro_batches * step.pipeline.parts) * (times.forward + times.backward);
  const double all = pipeline_makespan(step.pipeline, step.micro_batches, part);
  return all > 0 ? 1 - work / all : 0;
}

}  // namespace kformer::drivers
