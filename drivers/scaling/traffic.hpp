// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kformer/model/layer_options.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/parallel/rank_grid.hpp"

/// \file
/// What ranks send in a step of training, by the formulae of docs/parallel.md. Free of messages.

namespace kformer::drivers {

/// The arrays that a rank trains, in their order.
struct TrainedArrays {
  std::vector<std::int64_t> elements;  ///< of each
  std::vector<bool> partial;      ///< whether ranks along `tensor` have the same array, and add up its gradient
  std::vector<std::size_t> ends;  ///< where each group of gradients ends, ascending
};

/// What determines the messages of a rank.
struct StepShape {
  LlamaConfig config;                              ///< of the whole model
  LayerShape micro_batch{};                        ///< of whole sequences
  std::int64_t micro_batches = 1;                  ///< of a rank in a step
  GridIndex grid, place;                           ///< all ranks, and this one
  int zero = 0;                                    ///< stage of ZeRO
  std::size_t stored_bytes = 4;                    ///< of a weight or an activation
  std::size_t computed_bytes = 4;                  ///< of a gradient of a weight
  std::size_t chunk_bytes = std::size_t(4) << 20;  ///< `CollectivesOptions::chunk_bytes`
  TrainedArrays arrays;                            ///< of the rank
};

/// Which ranks take part in a call.
enum class CallAxis { context, tensor, replicas };

/// Calls of one operation in one region that one rank makes in a step.
struct Calls {
  std::string operation, region;  ///< as the log has them
  CallAxis axis = CallAxis::tensor;
  std::int64_t calls = 0;   ///< in a step
  std::uint64_t bytes = 0;  ///< that the rank sends in all of them
};

/// Bytes that rank `rank` of `ranks` sends in an `all_reduce`.
std::uint64_t all_reduce_bytes(std::int64_t elements, std::size_t element, int rank, int ranks,
                               std::size_t chunk_bytes);

/// The calls of a layer in one micro-batch, forward and backward. Those with less than two ranks are left out.
std::vector<Calls> layer_calls(const StepShape& step);

/// The calls of a step, those of its layers included.
std::vector<Calls> step_calls(const StepShape& step);

}  // namespace kformer::drivers
