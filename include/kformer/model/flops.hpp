// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/layer_options.hpp"
#include "kformer/model/llama_config.hpp"

/// \file
/// Floating-point operations of models, by the formulas of the field (Narayanan et al., arXiv:2104.04473, appendix;
/// Chowdhery et al., arXiv:2204.02311, appendix B). Norms, activations and recomputation do not count. Free of
/// Kokkos.

namespace kformer {

/// Operations of one decoder layer. Forward:
///
///     2 · rows · (elements of the matrices) + 4 · batch · heads · head_dim · pairs
///
/// with `pairs = seq²`, halved if causal, and without those outside the window. Backward is 2 × the products and
/// 2.5 × attention.
double layer_flops(const LlamaConfig& config, LayerShape shape, bool backward, bool causal = true);

/// Operations of a training step for each of its tokens: 6 for each weight that learns, 4 for each frozen one, and
/// 12 · layers · heads · head_dim · seq_len for attention, masked or not (Chowdhery et al., appendix B). Model FLOPs
/// utilisation (MFU) is this, times tokens per second, over the machine's rate.
double training_flops_per_token(const LlamaConfig& config, std::int64_t seq_len, const LoraConfig& lora = {});

}  // namespace kformer
