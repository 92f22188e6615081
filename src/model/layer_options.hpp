// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>

#include "kformer/core/option_checks.hpp"
#include "kformer/model/layer_options.hpp"
#include "model/tensor/slices.hpp"

/// \file
/// The checks of a layer's options.

namespace kformer::Impl {

/// Whether a matrix of a layer has this name.
inline bool is_projection_weight(std::string_view name) {
  for (std::size_t i = 0; i < names_of<Projection>.size(); ++i)
    if (name == projection_weight_name(static_cast<Projection>(i))) return true;
  return false;
}

/// \throws NotSupported if an option is out of range, or two cannot be combined
inline void check_layer_options(const LayerOptions& options) {
  const char* layer = "DecoderLayer";
  require_enumerator(layer, "attention", options.attention);
  require_enumerator(layer, "mode", options.mode);
  require_enumerator(layer, "compute", options.compute);
  require_enumerator(layer, "recompute", options.recompute);
  require_enumerator(layer, "context_exchange", options.context_exchange);
  if (options.recompute > Recompute::layer)
    throw NotSupported("kformer::DecoderLayer: a layer recomputes `none`, `pointwise` or `layer`, not `" +
                       std::string(name_of(options.recompute)) +
                       "`; other policies need a RecomputeSchedule on the LlamaModel");
  if (options.gradient_turns < 0 || (options.gradient_turns > 0 && options.accumulate))
    throw NotSupported(
        "kformer::DecoderLayer: gradient_turns must be 0 or, without accumulate, positive, got " +
        std::to_string(options.gradient_turns));
  if (options.slots < 1)
    throw NotSupported("kformer::DecoderLayer: slots must be at least 1, got " + std::to_string(options.slots));
  if (options.split_backward && options.recompute == Recompute::layer)
    throw NotSupported(
        "kformer::DecoderLayer: split_backward needs what forward kept a second time, but the layer recomputes "
        "all of it; choose Recompute::none or pointwise");
  if (!(options.lora.dropout >= 0 && options.lora.dropout < 1))
    throw NotSupported("kformer::DecoderLayer: lora.dropout must be in [0, 1), got " +
                       std::to_string(options.lora.dropout));
  if (options.packed && options.attention == AttentionAlgorithm::standard)
    throw NotSupported(
        "kformer::DecoderLayer: standard attention does not separate packed sequences; choose "
        "AttentionAlgorithm::flash");
  if (options.batch_invariant && options.attention == AttentionAlgorithm::standard)
    throw NotSupported(
        "kformer::DecoderLayer: standard attention is not batch-invariant: its products choose the order of a "
        "sum by their extents; choose AttentionAlgorithm::flash");
  if (!options.formats.empty() && !options.lora.any())
    throw NotSupported(
        "kformer::DecoderLayer: " + options.formats.begin()->first +
        " stays quantised, but quantised weights do not learn and there are no adapters; set `lora`, "
        "or expand the weights; LlamaDecoder generates with quantised ones");
  for (const auto& [name, format] : options.formats) {
    require_enumerator(layer, "formats", format);
    if (!is_projection_weight(name))
      throw NotSupported("kformer::DecoderLayer: formats: '" + name +
                         "' is no matrix of a layer; use names such as self_attn.q_proj.weight");
  }
}

/// Whether ranks divide the tokens.
inline bool divides_tokens(const LayerOptions& options) {
  return options.context && options.context->size() > 1;
}

/// \throws NotSupported if an option needs whole sequences
/// \throws DimensionMismatch if a rank's tokens are not two chunks
inline void check_context(const LlamaConfig& config, LayerShape shape, const LayerOptions& options) {
  if (!divides_tokens(options)) return;
  const auto refuse = [](const std::string& what) {
    throw NotSupported("kformer::DecoderLayer: ranks divide the tokens (context), and " + what);
  };
  if (shape.seq_len % 2 != 0)
    throw DimensionMismatch(
        "kformer::DecoderLayer: with `context` seq_len is that of a rank, two chunks; got " +
        std::to_string(shape.seq_len) + ", which is odd");
  if (options.attention == AttentionAlgorithm::standard)
    refuse("standard attention has whole sequences; choose AttentionAlgorithm::flash");
  if (!options.causal && config.sliding_window > 0)
    refuse("a window without a causal mask lies across them; set `causal`, or leave out `context`");
  if (options.context_exchange == ContextExchange::ring && config.sliding_window > 0)
    refuse("a window lies across the parts of a ring; choose ContextExchange::all_gather");
}

/// For another length of sequences.
/// \throws NotSupported if the memory is not for it, or ranks divide the tokens
inline void require_seq_len(const char* module, std::int64_t seq_len, std::int64_t most,
                            const LayerOptions& options) {
  const std::string name = std::string("kformer::") + module + "::use_seq_len: ";
  if (seq_len < std::min<std::int64_t>(1, most) || seq_len > most)
    throw NotSupported(name + "seq_len must be from 1 to " + std::to_string(most) +
                       ", that of the constructor, got " + std::to_string(seq_len));
  if ((divides_tokens(options) || divides_states(options)) && seq_len != most)
    throw NotSupported(name +
                       "ranks divide the tokens (context or sequence_parallel), each of which has arrays for " +
                       std::to_string(most) + " of a sequence");
}

/// \throws NotSupported if a weight stays quantised
inline void require_dense_weights(const LayerOptions& options) {
  if (options.formats.empty()) return;
  const auto& [name, format] = *options.formats.begin();
  throw NotSupported(
      "kformer::DecoderLayer::merge_adapters: " + name + " stays quantised (" + to_string(format) +
      "), so that its adapter cannot be added; keep the adapter, or load it into expanded weights");
}

}  // namespace kformer::Impl
