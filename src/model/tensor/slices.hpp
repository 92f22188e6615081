// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/model/impl/vocabulary_ranks.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/model/parameter.hpp"
#include "kformer/model/weight_matrix.hpp"
#include "kformer/parallel/communicator.hpp"

/// \file
/// What a rank has of a model whose heads, inner features and words are divided among ranks (Shoeybi et al., Megatron-LM,
/// arXiv:1909.08053, section 3).

namespace kformer::Impl {

/// Whether these ranks are several.
inline bool divides(const std::shared_ptr<Communicator>& tensor) { return tensor && tensor->size() > 1; }

/// Whether ranks divide the layers.
inline bool divides(const LayerOptions& options) { return divides(options.tensor); }

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

/// The extents of the part of a layer that a rank has; hidden_size and vocab_size are whole.
/// \throws NotSupported if the ranks do not divide an extent
inline LlamaConfig slice_of(LlamaConfig config, const std::shared_ptr<Communicator>& tensor) {
  if (!divides(tensor)) return config;
  const std::int64_t ranks = tensor->size();
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
inline void require_words(const LlamaConfig& config, const std::shared_ptr<Communicator>& tensor) {
  if (divides(tensor) && config.vocab_size < tensor->size())
    throw NotSupported("kformer::LlamaModel: " + std::to_string(tensor->size()) +
                       " ranks (tensor) do not divide vocab_size " + std::to_string(config.vocab_size) +
                       "; take fewer");
}

inline bool contains(std::string_view name, const char* part) {
  return name.find(part) != std::string_view::npos;
}

/// Whether a norm has this name: all ranks have it.
inline bool is_norm(std::string_view name) { return contains(name, "norm"); }

/// Along which axis ranks divide a matrix of a layer: 0 for rows, 1 for columns.
inline int divided_axis(std::string_view name) {
  return contains(name, "o_proj") || contains(name, "down_proj") ? 1 : 0;
}

/// Rows or columns of which each rank has `each`.
inline ArraySlice equal_part(const Communicator& tensor, std::int64_t each, int axis) {
  return {.whole = tensor.size() * each, .begin = tensor.rank() * each, .axis = axis};
}

/// Says of the parameters of a layer which part of the published array they are.
inline void mark_slices(const LayerOptions& options, std::vector<Parameter>& parameters) {
  if (!divides(options)) return;
  for (Parameter& p : parameters) {
    const int axis = divided_axis(p.name);
    if (!is_norm(p.name))
      p.slice = equal_part(*options.tensor, p.weight.extent[axis], axis);
    else if (contains(p.name, "layernorm"))  // Each rank has these for tokens of its own alone,
      p.partial_gradient = options.sequence_parallel;
    else  // and the norms of heads for heads of its own.
      p.partial_gradient = true;
  }
}

/// The same of adapters: A has the columns of its weight, B and magnitudes have its rows. What is whole has a gradient from
/// the rows or columns of each rank.
inline void mark_adapter_slices(const Communicator& tensor, std::vector<Parameter>& adapters) {
  for (Parameter& p : adapters) {
    const int axis = contains(p.name, ".lora_A.") ? 1 : 0;
    const bool divided = axis == divided_axis(p.name);
    if (divided) p.slice = equal_part(tensor, p.weight.extent[axis], axis);
    p.partial_gradient = !divided;
  }
}

/// The same of a weight of a layer.
inline void mark_slice(const Communicator& tensor, WeightSlot& slot) {
  const int axis = divided_axis(slot.name);
  if (!is_norm(slot.name)) slot.slice = equal_part(tensor, slot.extent(axis), axis);
}

/// The same of all weights of a model.
inline void mark_slices(const Communicator& tensor, const VocabularySlice& words,
                        std::vector<WeightSlot>& slots) {
  for (WeightSlot& slot : slots)
    if (contains(slot.name, "embed_tokens") || contains(slot.name, "lm_head"))
      slot.slice = {.whole = words.whole, .begin = words.begin};
    else
      mark_slice(tensor, slot);
}

/// Quantised values lie in blocks of a row, in NF4 with scales of the whole matrix.
/// \param config of this rank
/// \throws NotSupported if ranks divide what belongs together
inline void require_whole_blocks(const LlamaConfig& config, const WeightFormats& formats) {
  for (const auto& [name, format] : formats) {
    const std::int64_t columns = contains(name, "o_proj")      ? config.attention_size()
                                 : contains(name, "down_proj") ? config.intermediate_size
                                                               : 0;
    if (has_separate_rows(format) && columns % weights_per_block(format) == 0) continue;
    throw NotSupported("kformer::DecoderLayer: " + name + " stays quantised (" + to_string(format) +
                       ") in blocks that ranks (tensor) would divide; expand it" +
                       (has_separate_rows(format) ? ", or take another number of ranks" : ""));
  }
}

}  // namespace kformer::Impl
