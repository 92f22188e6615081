// SPDX-License-Identifier: MIT
#pragma once

#include "decks/memory/memory_plan_deck.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/llama_config.hpp"

/// \file
/// What a step of training on a grid of ranks takes, by formulas (docs/parallel.md).

namespace kformer::drivers {

/// A training on a grid.
struct GridTask {
  LlamaConfig config;              ///< of the whole model
  std::int64_t trained = 0;        ///< parameters that learn
  std::int64_t whole = 0;          ///< of these, adapters that all ranks have which divide the model
  LoraConfig lora{};               ///< adapters, which then alone learn
  LayerShape shape{};              ///< of a micro-batch
  std::int64_t micro_batches = 1;  ///< of each model in a step
  DType dtype = DType::f32;        ///< of weights and activations
  bool recomputes = false;         ///< whether backward computes most layers again
  PlanParallelTable grid;          ///< the ranks
};

/// Bytes that a rank of the first node sends in a step, along each axis. Where shares of ranks differ, the mean.
struct StepBytes {
  double tensor = 0;    ///< sums of states, or their parts
  double context = 0;   ///< keys and values, and their gradients
  double data = 0;      ///< gradients and weights
  double pipeline = 0;  ///< states and their gradients
};

/// \param task the training
StepBytes bytes_of_step(const GridTask& task);

/// Seconds of a step.
struct StepSeconds {
  double compute = 0;        ///< all micro-batches of a rank
  double idle = 0;           ///< in which it waits for other stages
  double communication = 0;  ///< of its messages, which nothing hides
  /// All of them.
  double total() const { return compute + idle + communication; }
};

/// \param task                the training
/// \param micro_batch_seconds that a rank computes for a micro-batch
/// \param machine             what carries its messages
StepSeconds seconds_of_step(const GridTask& task, double micro_batch_seconds, const PlanGridsTable& machine);

}  // namespace kformer::drivers
