// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "decks/layer_deck.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/train/optimizer.hpp"
#include "sweep/run.hpp"

/// \file
/// One decoder layer with its inputs. Its results are `output`, with gradients `grad.hidden_states` and
/// `grad.<weight>`, and of a step `updated.<weight>`.

namespace kformer::drivers {

/// Operands that are changed by at most an ulp, each by chance: the same in every precision.
struct ChangedOperands {
  std::uint64_t number = 0;  ///< tells changes apart; 0: none
  DType dtype = DType::f32;  ///< whose ulp; operands are values of this type
};

/// The description of a layer run.
struct LayerTask {
  LlamaConfig config;                            ///< of the layer
  LayerShape shape;                              ///< tokens
  AttentionAlgorithm algorithm;                  ///< implementation of attention
  Direction direction;                           ///< a forward alone is inference
  PrecisionTable precision;                      ///< besides the storage type
  OptimizerTable optimizer;                      ///< of a step
  std::uint64_t seed = 1;                        ///< of random inputs
  const measure::HostArrays* tensors = nullptr;  ///< inputs from a file; null: random
  ChangedOperands changed = {};                  ///< of these inputs

  /// Whether there is a backward pass.
  LayerMode mode() const {
    return direction == Direction::forward ? LayerMode::inference : LayerMode::training;
  }
};

/// The optimizer of a step.
OptimizerOptions optimizer_options(const LayerTask& task);

/// A layer run on the space of that name in that precision; all memory is booked in `ledger`.
/// \throws OutOfMemory with the ledger
std::unique_ptr<Run> make_layer_run(const std::string& space, DType dtype, const LayerTask& task,
                                    const std::shared_ptr<Ledger>& ledger);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<Run> make_layer_run_on(DType dtype, const LayerTask& task, Ledger& ledger);

}  // namespace kformer::drivers
