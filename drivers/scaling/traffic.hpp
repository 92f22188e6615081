// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/types/context_exchange.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/parallel/pipeline_schedule.hpp"
#include "kformer/parallel/rank_grid.hpp"

/// \file
/// What ranks send in a step of training, by the formulae of docs/parallel.md. Free of messages.

namespace kformer::drivers {

/// The arrays that a rank trains, in their order.
struct TrainedArrays {
  std::vector<std::int64_t> elements;  ///< of each
  std::vector<bool> partial;      ///< whether ranks along `tensor` have the same array, and add up its gradient
  std::vector<bool> tied;         ///< whether the first and the last stage have it, and add up its gradient
  std::vector<bool> copy;         ///< whether another stage has the same array, which the norm counts
  std::vector<std::size_t> ends;  ///< where each group of gradients ends, ascending
};

/// What determines the messages of a rank.
struct StepShape {
  LlamaConfig config;                                      ///< of the whole model
  LayerShape micro_batch{};                                ///< of whole sequences
  std::int64_t micro_batches = 1;                          ///< of a rank in a step
  GridIndex grid, place;                                   ///< all ranks, and this one
  int zero = 0;                                            ///< stage of ZeRO
  bool sequence = false;                                   ///< whether ranks along `tensor` divide states
  ContextExchange exchange = ContextExchange::all_gather;  ///< of keys and values, among ranks along `context`
  PipelineShape pipeline{};                                ///< the stages, and the order of their work
  std::size_t stored_bytes = 4;                            ///< of a weight or an activation
  std::size_t computed_bytes = 4;                          ///< of a gradient of a weight
  std::size_t chunk_bytes = std::size_t(4) << 20;          ///< `CollectivesOptions::chunk_bytes`
  TrainedArrays arrays;                                    ///< of the rank
};

/// Which ranks take part in a call: along an axis; all that share weights; all stages, their ends, two that follow each
/// other.
enum class CallAxis { context, tensor, replicas, stages, ends, neighbours };
/// How many there are.
constexpr std::size_t call_axes = 6;

}  // namespace kformer::drivers

namespace kformer {

/// The names in result files.
template <>
inline constexpr std::array<std::string_view, drivers::call_axes> names_of<drivers::CallAxis> = {
    "context", "tensor", "replicas", "stages", "ends", "neighbours"};

}  // namespace kformer

namespace kformer::drivers {

/// The ranks along an axis.
int ranks_along(CallAxis axis, const GridIndex& grid);

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

/// The layers of a part of a stage.
std::int64_t layers_of(const StepShape& step, int part);
/// Whether a part of a stage is the first of the model.
bool is_first_part(const StepShape& step, int part);
/// Whether a part of a stage is the last of the model.
bool is_last_part(const StepShape& step, int part);

/// The calls of a layer in one micro-batch, forward and backward. Those with less than two ranks are left out.
std::vector<Calls> layer_calls(const StepShape& step);

/// The calls of a step, those of its layers included.
std::vector<Calls> step_calls(const StepShape& step);

}  // namespace kformer::drivers
