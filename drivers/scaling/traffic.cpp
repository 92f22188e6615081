// SPDX-License-Identifier: MIT
#include "scaling/traffic.hpp"

#include <algorithm>

#include "kformer/parallel/shards.hpp"

namespace kformer::drivers {

namespace {

// Elements that stay together in a shard (docs/parallel.md).
constexpr std::int64_t piece = 8192;

std::int64_t own_tokens(const StepShape& step) { return step.micro_batch.rows() / step.grid.context; }

// Of states.
std::uint64_t state_bytes(const StepShape& step) {
  const std::int64_t rows = own_tokens(step) / (step.sequence ? step.grid.tensor : 1);
  return static_cast<std::uint64_t>(rows * step.config.hidden_size) * step.stored_bytes;
}

// Adds calls, unless nobody else takes part.
class CallList {
 public:
  explicit CallList(const StepShape& step) : m_step(step) {}

  void add(const char* operation, const char* region, CallAxis axis, std::int64_t calls,
           std::uint64_t bytes_of_one) {
    if (ranks_along(axis, m_step.grid) == 1 || calls == 0) return;
    const std::uint64_t bytes = static_cast<std::uint64_t>(calls) * bytes_of_one;
    for (Calls& c : m_calls)
      if (c.operation == operation && c.region == region && c.axis == axis) {
        c.calls += calls;
        c.bytes += bytes;
        return;
      }
    m_calls.push_back({operation, region, axis, calls, bytes});
  }
  // Numbers that every rank sends to all others.
  void add_numbers(const char* region, CallAxis axis, std::int64_t numbers) {
    const auto others = static_cast<std::uint64_t>(ranks_along(axis, m_step.grid) - 1);
    add("gather_values", region, axis, 1, others * static_cast<std::uint64_t>(numbers) * sizeof(double));
  }
  // A sum of states over the ranks that divide the model, of which each gets all, or its tokens.
  void add_sum(const char* region, std::int64_t calls) {
    if (m_step.sequence)
      add("reduce_scatter", region, CallAxis::tensor, calls, of_others());
    else
      add("all_reduce", region, CallAxis::tensor, calls,
          all_reduce_bytes(own_tokens(m_step) * m_step.config.hidden_size, m_step.stored_bytes,
                           m_step.place.tensor, m_step.grid.tensor, m_step.chunk_bytes));
  }
  // States of all tokens, where ranks divide these.
  void add_gather(std::int64_t calls) {
    if (m_step.sequence) add("all_gather", "tokens", CallAxis::tensor, calls, of_others());
  }
  std::vector<Calls> take() { return std::move(m_calls); }

 private:
  std::uint64_t of_others() const {
    return static_cast<std::uint64_t>(m_step.grid.tensor - 1) * state_bytes(m_step);
  }

  const StepShape& m_step;
  std::vector<Calls> m_calls;
};

// Keys and values, in `count` layers: in forward, and in backward with their gradients.
void add_keys(const StepShape& step, std::int64_t count, CallList& list) {
  const std::int64_t width = 2 * step.config.num_key_value_heads / step.grid.tensor * step.config.head_dim;
  const auto elements = static_cast<std::uint64_t>(own_tokens(step) * width);
  const std::int64_t others = step.grid.context - 1;
  if (step.exchange == ContextExchange::ring) {
    list.add("shift", "keys and values", CallAxis::context, 2 * others * count, elements * step.stored_bytes);
    // Sums on their way.
    list.add("shift", "gradients of keys and values", CallAxis::context, others * count,
             elements * step.computed_bytes);
    return;
  }
  const std::uint64_t bytes = static_cast<std::uint64_t>(others) * elements * step.stored_bytes;
  list.add("all_gather", "keys and values", CallAxis::context, 2 * count, bytes);
  list.add("reduce_scatter", "gradients of keys and values", CallAxis::context, count, bytes);
}

// `layers` in each of `micro_batches`.
void add_layers(const StepShape& step, std::int64_t layers, std::int64_t micro_batches, CallList& list) {
  const std::int64_t count = layers * micro_batches;
  list.add_sum("activations", 2 * count);
  list.add_sum("gradients of activations", 2 * count);
  // Of both inputs in forward, and for backward with both gradients; gradients of weights that wait need all again.
  list.add_gather((splits_backward(step.pipeline.schedule) ? 8 : 6) * count);
  add_keys(step, count, list);
}

// Embedding, head and loss, on the stages that have them.
void add_ends(const StepShape& step, CallList& list) {
  const std::int64_t m = step.micro_batches;
  if (is_first_part(step, 0)) {
    list.add_sum("embedding", m);
    list.add_gather(m);
  }
  if (!is_last_part(step, step.pipeline.parts - 1)) return;
  list.add_gather(m);
  list.add("all_gather", "loss", CallAxis::tensor, m,
           static_cast<std::uint64_t>((step.grid.tensor - 1) * 2 * own_tokens(step)) * step.computed_bytes);
  list.add_sum("gradients of activations", m);
}

// What stages send to each other.
void add_stages(const StepShape& step, CallList& list) {
  const std::int64_t m = step.micro_batches, parts = step.pipeline.parts;
  list.add("send", "states", CallAxis::neighbours, m * (parts - is_last_part(step, step.pipeline.parts - 1)),
           state_bytes(step));
  list.add("send", "gradients of states", CallAxis::neighbours, m * (parts - is_first_part(step, 0)),
           state_bytes(step));
  list.add_numbers("stage losses", CallAxis::stages, m);
  list.add_numbers("stage norm", CallAxis::stages, parts);
  std::int64_t pieces = 0;
  for (std::size_t i = 0; i < step.arrays.elements.size(); ++i)
    if (!step.arrays.copy[i]) pieces += (step.arrays.elements[i] + piece - 1) / piece;
  // Squares, and whether ranks divide the array.
  list.add_numbers("stage norm", CallAxis::stages, 2 * pieces);
  for (std::size_t i = 0; i < step.arrays.elements.size(); ++i)
    if (step.arrays.tied[i])
      list.add("all_reduce", "gradients", CallAxis::ends, 1,
               all_reduce_bytes(step.arrays.elements[i], step.computed_bytes, step.place.pipeline > 0, 2,
                                step.chunk_bytes));
}

void add_gradients(const StepShape& step, CallList& list) {
  const int ranks = step.grid.data * step.grid.context,
            rank = step.place.data * step.grid.context + step.place.context;
  const Shards shards(step.arrays.elements, piece, ranks, step.arrays.ends);
  const auto others = static_cast<std::uint64_t>(ranks - 1);
  std::int64_t all = 0;
  for (const std::int64_t elements : step.arrays.elements) all += elements;
  const auto own = static_cast<std::uint64_t>(shards.elements(rank)),
             foreign = static_cast<std::uint64_t>(all) - own;
  list.add_numbers("counts", CallAxis::replicas, 4);
  list.add_numbers("losses", CallAxis::replicas, step.micro_batches);
  const std::int64_t pieces = shards.pieces_end(rank) - (rank > 0 ? shards.pieces_end(rank - 1) : 0);
  list.add_numbers("norm", CallAxis::replicas, pieces);
  list.add_numbers("norm", CallAxis::tensor, 1);
  const std::int64_t rounds = step.zero == 2 ? step.micro_batches : 1;
  for (std::size_t i = 0; i < step.arrays.elements.size(); ++i)
    if (step.arrays.partial[i])
      list.add("all_reduce", "gradients", CallAxis::tensor, rounds,
               all_reduce_bytes(step.arrays.elements[i], step.computed_bytes, step.place.tensor,
                                step.grid.tensor, step.chunk_bytes));
  if (step.zero == 2) {
    // Each group of each micro-batch is a call.
    const auto groups = std::ssize(step.arrays.ends);
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::size_t begin = g > 0 ? step.arrays.ends[static_cast<std::size_t>(g) - 1] : 0,
                        end = step.arrays.ends[static_cast<std::size_t>(g)];
      std::int64_t sent = 0;
      for (std::size_t a = begin; a < end; ++a) sent += step.arrays.elements[a] - shards.of(rank)[a].size();
      // Those of two stages are added up until the end of the step.
      list.add("reduce_shards", "gradients", CallAxis::replicas, step.arrays.tied[begin] ? 1 : rounds,
               static_cast<std::uint64_t>(sent) * step.computed_bytes);
    }
  } else {
    list.add("reduce_shards", "gradients", CallAxis::replicas, 1, foreign * step.computed_bytes);
  }
  if (step.zero == 0)
    list.add("gather_shards", "gradients", CallAxis::replicas, 1, others * own * step.computed_bytes);
  else
    list.add("gather_shards", "weights", CallAxis::replicas, 1, others * own * step.stored_bytes);
}

}  // namespace

int ranks_along(CallAxis axis, const GridIndex& grid) {
  switch (axis) {
    case CallAxis::context:
      return grid.context;
    case CallAxis::tensor:
      return grid.tensor;
    case CallAxis::replicas:
      return grid.data * grid.context;
    case CallAxis::stages:
      return grid.pipeline;
    case CallAxis::ends:
    case CallAxis::neighbours:
      break;
  }
  return std::min(2, grid.pipeline);
}

std::int64_t layers_of(const StepShape& step, int part) {
  const std::int64_t all = step.config.num_hidden_layers, parts = step.grid.pipeline * step.pipeline.parts,
                     place = part * step.grid.pipeline + step.place.pipeline;
  return all * (place + 1) / parts - all * place / parts;
}

bool is_first_part(const StepShape& step, int part) { return part == 0 && step.place.pipeline == 0; }

bool is_last_part(const StepShape& step, int part) {
  return part + 1 == step.pipeline.parts && step.place.pipeline + 1 == step.grid.pipeline;
}

std::uint64_t all_reduce_bytes(std::int64_t elements, std::size_t element, int rank, int ranks,
                               std::size_t chunk_bytes) {
  if (ranks == 1) return 0;
  // A part of a chunk is a multiple of 64 bytes, but for the last.
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t slot = ((chunk_bytes + n - 1) / n + 63) / 64 * 64;
  const std::int64_t longest = ranks * static_cast<std::int64_t>(slot / element);
  std::int64_t sent = 0;
  for (std::int64_t first = 0; first < elements; first += longest) {
    const std::int64_t count = std::min(longest, elements - first), each = (count + ranks - 1) / ranks,
                       begin = std::min(count, rank * each), own = std::min(each, count - begin);
    sent += count - own + (ranks - 1) * own;
  }
  return static_cast<std::uint64_t>(sent) * element;
}

std::vector<Calls> layer_calls(const StepShape& step) {
  CallList list(step);
  add_layers(step, 1, 1, list);
  return list.take();
}

std::vector<Calls> step_calls(const StepShape& step) {
  CallList list(step);
  std::int64_t layers = 0;
  for (int part = 0; part < step.pipeline.parts; ++part) layers += layers_of(step, part);
  add_layers(step, layers, step.micro_batches, list);
  add_ends(step, list);
  add_gradients(step, list);
  if (step.grid.pipeline > 1) add_stages(step, list);
  return list.take();
}

}  // namespace kformer::drivers
