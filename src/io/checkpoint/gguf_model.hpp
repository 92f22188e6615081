// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/io/gguf.hpp"
#include "kformer/io/model_table.hpp"

namespace kformer::Impl {

/// The model of a GGUF file of architecture llama, qwen2 or qwen3.
/// \throws FileError naming the metadata key or tensor, and what was expected
LanguageModelTable model_of_gguf(const GgufFile& file);

/// Tensor of the factors that RoPE frequencies are divided by; it is part of the model's table.
inline constexpr const char* rope_factors_name = "rope_freqs.weight";

}  // namespace kformer::Impl
