// SPDX-License-Identifier: MIT
#include "scaling/traffic.hpp"

#include <algorithm>

#include "kformer/parallel/shards.hpp"

namespace kformer::drivers {

namespace {

// Elements that stay together in a shard (docs/parallel.md).
constexpr std::int64_t piece = 8192;

std::int64_t own_tokens(const StepShape& step) { return step.micro_batch.rows() / step.grid.context; }

// Adds calls, unless nobody else takes part.
class CallList {
 public:
  explicit CallList(const StepShape& step) : m_step(step) {}

  void add(const char* operation, const char* region, CallAxis axis, std::int64_t calls,
           std::uint64_t bytes_of_one) {
    const int ranks = axis == CallAxis::context  ? m_step.grid.context
                      : axis == CallAxis::tensor ? m_step.grid.tensor
                                                 : m_step.grid.data * m_step.grid.context;
    if (ranks == 1 || calls == 0) return;
    const std::uint64_t bytes = static_cast<std::uint64_t>(calls) * bytes_of_one;
    for (Calls& c : m_calls)
      if (c.operation == operation && c.region == region && c.axis == axis) {
        c.calls += calls;
        c.bytes += bytes;
        return;
      }
    m_calls.push_back({operation, region, axis, calls, bytes});
  }
  std::vector<Calls> take() { return std::move(m_calls); }

 private:
  const StepShape& m_step;
  std::vector<Calls> m_calls;
};

std::uint64_t sum_over_tensor(const StepShape& step, std::int64_t elements, std::size_t element) {
  return all_reduce_bytes(elements, element, step.place.tensor, step.grid.tensor, step.chunk_bytes);
}

// `layers` in each of `micro_batches`.
void add_layers(const StepShape& step, std::int64_t layers, std::int64_t micro_batches, CallList& list) {
  const std::int64_t count = layers * micro_batches, tokens = own_tokens(step);
  const std::uint64_t sum = sum_over_tensor(step, tokens * step.config.hidden_size, step.stored_bytes);
  list.add("all_reduce", "activations", CallAxis::tensor, 2 * count, sum);
  list.add("all_reduce", "gradients of activations", CallAxis::tensor, 2 * count, sum);
  const std::int64_t width = 2 * step.config.num_key_value_heads / step.grid.tensor * step.config.head_dim;
  const auto others = static_cast<std::uint64_t>(step.grid.context - 1);
  const std::uint64_t keys = others * static_cast<std::uint64_t>(tokens * width) * step.stored_bytes;
  list.add("all_gather", "keys and values", CallAxis::context, 2 * count, keys);
  list.add("reduce_scatter", "gradients of keys and values", CallAxis::context, count, keys);
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
  list.add("gather_values", "counts", CallAxis::replicas, 1, others * 2 * sizeof(double));
  list.add("gather_values", "losses", CallAxis::replicas, 1,
           others * static_cast<std::uint64_t>(step.micro_batches) * sizeof(double));
  const std::int64_t pieces = shards.pieces_end(rank) - (rank > 0 ? shards.pieces_end(rank - 1) : 0);
  list.add("gather_values", "norm", CallAxis::replicas, 1,
           others * static_cast<std::uint64_t>(pieces) * sizeof(double));
  list.add("gather_values", "norm", CallAxis::tensor, 1,
           static_cast<std::uint64_t>(step.grid.tensor - 1) * sizeof(double));
  const std::int64_t rounds = step.zero == 2 ? step.micro_batches : 1;
  for (std::size_t i = 0; i < step.arrays.elements.size(); ++i)
    if (step.arrays.partial[i])
      list.add("all_reduce", "gradients", CallAxis::tensor, rounds,
               sum_over_tensor(step, step.arrays.elements[i], step.computed_bytes));
  if (step.zero == 2) {
    // Each group of each micro-batch is a call.
    const auto groups = std::ssize(step.arrays.ends);
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::size_t begin = g > 0 ? step.arrays.ends[static_cast<std::size_t>(g) - 1] : 0,
                        end = step.arrays.ends[static_cast<std::size_t>(g)];
      std::int64_t sent = 0;
      for (std::size_t a = begin; a < end; ++a) sent += step.arrays.elements[a] - shards.of(rank)[a].size();
      list.add("reduce_shards", "gradients", CallAxis::replicas, rounds,
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
  const std::int64_t m = step.micro_batches, tokens = own_tokens(step);
  add_layers(step, step.config.num_hidden_layers, m, list);
  const std::uint64_t sum = sum_over_tensor(step, tokens * step.config.hidden_size, step.stored_bytes);
  list.add("all_reduce", "embedding", CallAxis::tensor, m, sum);
  list.add("all_gather", "loss", CallAxis::tensor, m,
           static_cast<std::uint64_t>((step.grid.tensor - 1) * 2 * tokens) * step.computed_bytes);
  list.add("all_reduce", "gradients of activations", CallAxis::tensor, m, sum);
  add_gradients(step, list);
  return list.take();
}

}  // namespace kformer::drivers
