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

/// Whether they also divide the tokens of states.
inline bool divides_states(const LayerOptions& options) {
  return options.sequence_parallel && divides(options);
}

/// The tokens of states that a rank has.
inline std::int64_t state_rows(LayerShape shape, const LayerOptions& options) {
  return shape.rows() / (divides_states(options) ? options.tensor->size() : 1);
}

/// \throws NotSupported if ranks do not divide the tokens of states that they ought to
inline void check_state_rows(LayerShape shape, const LayerOptions& options) {
  if (divides_states(options) && shape.rows() % options.tensor->size() != 0)
    throw NotSupported(
        "kformer::DecoderLayer: " + std::to_string(options.tensor->size()) +
        " ranks (tensor) do not divide the " + std::to_string(shape.rows()) +
        " tokens (batch x seq_len), as sequence_parallel wants; take a number of ranks that does");
}

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
    // Each rank has the first for tokens of its own alone, the others for heads of its own.
    if (is("layernorm")) {
      p.partial_gradient = options.sequence_parallel;
      continue;
    }
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
