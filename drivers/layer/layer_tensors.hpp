// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "decks/layer_deck.hpp"
#include "layer/layer_run.hpp"

namespace kformer::drivers {

/// What `[tensors] input` holds: the inputs of a layer, and what its metadata say about the layer.
struct LayerTensors {
  HostArrays arrays;  ///< hidden_states, grad_output (if there), and the weights by their published names
  LayerShape shape;   ///< from hidden_states
};

/// Reads the file, completes `model` where the deck leaves keys open from the file's metadata and shapes, and
/// checks every tensor against it.
/// \throws FileError listing every tensor that is missing or has the wrong shape
LayerTensors read_layer_tensors(const std::filesystem::path& file, ModelTable& model, bool needs_gradient);

}  // namespace kformer::drivers
