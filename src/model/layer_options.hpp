// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/option_checks.hpp"
#include "kformer/model/layer_options.hpp"

/// \file
/// The checks of a layer's options.

namespace kformer::Impl {

/// \throws NotSupported if an option is out of range, or two cannot be combined
inline void check_layer_options(const LayerOptions& options) {
  const char* layer = "DecoderLayer";
  require_enumerator(layer, "attention", options.attention);
  require_enumerator(layer, "mode", options.mode);
  require_enumerator(layer, "compute", options.compute);
  require_enumerator(layer, "recompute", options.recompute);
  if (options.recompute > Recompute::layer)
    throw NotSupported("kformer::DecoderLayer: a layer recomputes `none`, `pointwise` or `layer`, not `" +
                       std::string(name_of(options.recompute)) +
                       "`; other policies need a RecomputeSchedule on the LlamaModel");
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
        "sum "
        "by their extents; choose AttentionAlgorithm::flash");
}

}  // namespace kformer::Impl
