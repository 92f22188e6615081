// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/model/parameter.hpp"
#include "kformer/parallel/communicator.hpp"

/// \file
/// What a rank has of a model whose heads, inner features and words are divided among ranks (Shoeybi et al., Megatron-LM,
/// arXiv:1909.08053, section 3).

namespace kformer::Impl {

/// Whether ranks divide the layers.
inline bool divides(const LayerOptions& options) { return options.tensor && options.tensor->size() > 1; }

/// The extents of the part of a layer that a rank has; hidden_size is whole.
/// \throws NotSupported if the ranks do not divide an extent, or an option needs whole layers
inline LlamaConfig slice_of(LlamaConfig config, const LayerOptions& options) {
  if (!divides(options)) return config;
  const std::int64_t ranks = options.tensor->size();
  if (options.lora.any())
    throw NotSupported(
        "kformer::DecoderLayer: adapters are not divided among ranks; leave out `lora` or `tensor`");
  const auto divide = [&](const char* key, std::int64_t& extent) {
    if (extent % ranks != 0)
      throw NotSupported("kformer::DecoderLayer: " + std::to_string(ranks) + " ranks (tensor) do not divide " +
                         key + " " + std::to_string(extent) + "; take a number of ranks that does");
    extent /= ranks;
  };
  divide("num_attention_heads", config.num_attention_heads);
  divide("num_key_value_heads", config.num_key_value_heads);
  divide("intermediate_size", config.intermediate_size);
  return config;
}

/// Every rank needs a word.
/// \throws NotSupported
inline void require_words(const LlamaConfig& config, const LayerOptions& options) {
  if (divides(options) && config.vocab_size < options.tensor->size())
    throw NotSupported("kformer::LlamaModel: " + std::to_string(options.tensor->size()) +
                       " ranks (tensor) do not divide vocab_size " + std::to_string(config.vocab_size) +
                       "; take fewer");
}

/// Says of the parameters of a layer which part of the published array they are.
inline void mark_slices(const LayerOptions& options, std::vector<Parameter>& parameters) {
  if (!divides(options)) return;
  const std::int64_t ranks = options.tensor->size(), rank = options.tensor->rank();
  for (Parameter& p : parameters) {
    const std::string_view name = p.name;
    const auto is = [&](const char* part) { return name.find(part) != std::string_view::npos; };
    if (is("layernorm")) continue;
    // Each rank has these for heads of its own alone.
    if (is("q_norm") || is("k_norm")) {
      p.partial_gradient = true;
      continue;
    }
    const int axis = is("o_proj") || is("down_proj") ? 1 : 0;
    const std::int64_t each = p.weight.extent[axis];
    p.slice = {.whole = ranks * each, .begin = rank * each, .axis = axis};
  }
}

}  // namespace kformer::Impl
