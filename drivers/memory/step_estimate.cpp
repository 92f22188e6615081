// SPDX-License-Identifier: MIT
#include "memory/step_estimate.hpp"

#include <utility>

#include "kformer/core/dtype.hpp"
#include "kformer/parallel/pipeline_schedule.hpp"

namespace kformer::drivers {

namespace {

// Of a part, by operations for a token: 2 for each parameter of a product. The gradients of states take what forward takes, and
// those of weights as much, or with adapters what these do; with magnitudes, each product once more.
PipelineTimes times_of(const GridTask& task, double seconds) {
  const auto model = static_cast<double>(task.config.model_parameter_count()),
             adapters = task.lora.any() ? static_cast<double>(task.trained) : 0;
  const double states = model + adapters;
  const double weights = !task.lora.any() ? model : adapters + (task.lora.magnitudes ? model : 0);
  const double unit = seconds / (2 * states + weights);
  return {.forward = unit * states, .backward = unit * states, .weights = unit * weights};
}

bool two_have_the_embedding(const GridTask& task) {
  return task.grid.pipeline > 1 && task.config.tie_word_embeddings &&
         task.trained == task.config.model_parameter_count();
}

}  // namespace

StepBytes bytes_of_step(const GridTask& task) {
  const PlanParallelTable& g = task.grid;
  const LlamaConfig& c = task.config;
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  const double tensor = number(g.tensor), context = number(g.context), stages = number(g.pipeline),
               replicas = number(g.data) * context, batches = number(task.micro_batches);
  const double element = static_cast<double>(size_of(task.dtype)), gradient = task.dtype == DType::f64 ? 8 : 4;
  const double layers = number(c.num_hidden_layers) / stages, tokens = number(task.shape.rows()) / context;
  const double states = tokens * number(c.hidden_size) * element;
  // A sum is a reduce_scatter and an all_gather.
  const double half_sum = states * (tensor - 1) / tensor;
  StepBytes bytes;
  const double again = task.recomputes ? 1 : 0;
  // The gradients of weights that are put off gather the tokens of their operands anew.
  const double put_off = g.pipeline > 1 && splits_backward(g.schedule) ? 2 : 0;
  const double of_layer = g.sequence ? 10 + put_off + 3 * again : 8 + 2 * again;
  bytes.tensor = batches * (layers * of_layer + 4 / stages) * half_sum;
  // In a ring the gradients of keys and values travel in the type of the gradients of weights.
  const double of_pairs =
      g.context_exchange == ContextExchange::ring ? (2 + again) * element + gradient : (3 + again) * element;
  bytes.context = batches * layers * (context - 1) * tokens * 2 * number(c.num_key_value_heads * c.head_dim) /
                  tensor * of_pairs;
  // Two stages have a tied embedding.
  const bool twice = two_have_the_embedding(task);
  const bool fixed = g.order == SumOrder::fixed;
  const double copy = twice ? number(c.vocab_size * c.hidden_size) : 0;
  const double whole = number(task.whole) / stages, share = (replicas - 1) / replicas;
  const double weights = (number(task.trained - task.whole) + copy) / (tensor * stages) + whole;
  bytes.tensor += (g.zero == 2 ? batches : 1) * 2 * whole * gradient * (tensor - 1) / tensor;
  bytes.data = g.zero == 0   ? 2 * weights * gradient * share
               : g.zero == 1 ? weights * (gradient + element) * share
                             : weights * (batches * gradient + element) * share;
  // Its gradient is reduced once a step or, in the fixed order, in the first stage, which gathers the sum.
  if (g.zero == 2) bytes.data -= (fixed ? 1 : 2) * copy / (tensor * stages) * (batches - 1) * gradient * share;
  const double parts = number(g.parts);
  // In the fixed order the last stage also sends the first what the head has made of it.
  const double copies = 2 + (fixed ? batches : 0);
  bytes.pipeline = 2 * batches * (parts * stages - 1) / stages * states / (g.sequence ? tensor : 1) +
                   copies * copy / (tensor * stages) * gradient;
  return bytes;
}

StepSeconds seconds_of_step(const GridTask& task, double micro_batch_seconds, const PlanGridsTable& machine) {
  const PlanParallelTable& g = task.grid;
  const StepBytes bytes = bytes_of_step(task);
  StepSeconds seconds;
  seconds.compute = static_cast<double>(task.micro_batches) * micro_batch_seconds;
  const PipelineShape pipeline{g.schedule, static_cast<int>(g.pipeline), static_cast<int>(g.parts)};
  const bool sends_tied = g.order == SumOrder::fixed && two_have_the_embedding(task);
  if (g.pipeline > 1)
    seconds.idle = pipeline_makespan(pipeline, task.micro_batches,
                                     times_of(task, micro_batch_seconds / static_cast<double>(g.parts)),
                                     sends_tied ? pipeline_tied_messages(pipeline) : 0) -
                   seconds.compute;
  // Neighbours along the axes come in this order.
  std::int64_t reach = 1;
  for (const auto& [ranks, sent] : {std::pair{g.tensor, bytes.tensor},
                                    {g.context, bytes.context},
                                    {g.data, bytes.data},
                                    {g.pipeline, bytes.pipeline}}) {
    reach *= ranks;
    if (ranks > 1 || sent > 0)
      seconds.communication += sent / (reach <= machine.node ? machine.bandwidth : machine.network);
  }
  return seconds;
}

}  // namespace kformer::drivers
