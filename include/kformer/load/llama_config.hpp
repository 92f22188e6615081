// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/io/model_table.hpp"
#include "kformer/model/llama_config.hpp"

namespace kformer {

/// The configuration of the layer that a table describes.
/// \throws DimensionMismatch naming the key that is out of range
inline LlamaConfig llama_config(const ModelTable& model) {
  model.check();
  return model;
}

/// The configuration of the model that a checkpoint describes: `llama_config(checkpoint.model())`.
/// \throws DimensionMismatch naming the key that is out of range
inline LlamaConfig llama_config(const LanguageModelTable& model) {
  model.check_model();
  return model;
}

}  // namespace kformer
