// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/decoder_layer.hpp"
#include "kformer/model/llama_config.hpp"

namespace kformer::drivers {

/// Books in `ledger`, which counts, the memory of a training step on whole sequences: the model with gradients
/// and saved activations, and AdamW with its states.
template <class Exec>
void forecast_training_on(DType dtype, const LlamaConfig& config, LayerShape shape, Ledger& ledger);

}  // namespace kformer::drivers
