// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/run.hpp"
#include "kformer/model/decoder_layer.hpp"

/// \file
/// One decoder layer with its inputs. Its results are `output` and, with gradients, `grad.hidden_states` and
/// `grad.<weight>`.

namespace kformer::drivers {

/// Everything that says which layer to make.
struct LayerTask {
  LlamaConfig config;                   ///< of the layer
  LayerShape shape;                     ///< tokens
  AttentionAlgorithm algorithm;         ///< how attention is computed
  LayerMode mode;                       ///< training keeps what backward needs
  std::uint64_t seed = 1;               ///< of random inputs
  const HostArrays* tensors = nullptr;  ///< inputs from elsewhere; null: random
};

/// A layer run on the space of that name in that precision; all memory is booked in `ledger`.
/// \throws OutOfMemory with the ledger
std::unique_ptr<Run> make_layer_run(const std::string& space, DType dtype, const LayerTask& task,
                                    const std::shared_ptr<Ledger>& ledger);

/// The same on one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<Run> make_layer_run_on(DType dtype, const LayerTask& task, Ledger& ledger);

}  // namespace kformer::drivers
