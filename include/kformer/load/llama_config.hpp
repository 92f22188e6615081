// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/io/model_table.hpp"
#include "kformer/model/llama_config.hpp"

namespace kformer {

/// The layer that a table describes.
/// \throws DimensionMismatch naming the key that is out of range
LlamaConfig llama_config(const ModelTable& model);

/// The model that a checkpoint's config.json or metadata describe: `llama_config(checkpoint.model())`.
/// \throws DimensionMismatch naming the key that is out of range
LlamaConfig llama_config(const LanguageModelTable& model);

}  // namespace kformer
