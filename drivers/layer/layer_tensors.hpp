// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "kformer/io/model_table.hpp"
#include "kformer/model/layer_options.hpp"
#include "measure/host_array.hpp"

namespace kformer::drivers {

/// The contents of `[tensors] input`: the inputs of a layer, and the properties of the layer from the metadata.
struct LayerTensors {
  measure::HostArrays
      arrays;        ///< hidden_states, grad_output (if there), and the weights by their published names
  LayerShape shape;  ///< from hidden_states
};

/// Reads the file, completes missing keys of `model` from the file's metadata and shapes, and
/// checks every tensor against it.
/// \throws FileError listing every tensor that is missing, unknown or has the wrong shape
LayerTensors read_layer_tensors(const std::filesystem::path& file, ModelTable& model, bool needs_gradient);

}  // namespace kformer::drivers
