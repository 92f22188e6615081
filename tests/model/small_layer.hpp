// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/llama_config.hpp"

/// \file
/// The layer that the tests of layers vary.

namespace kformer::Testing {

/// Grouped heads, and extents that no vector divides.
inline LlamaConfig small_config() {
  return {.hidden_size = 56,
          .intermediate_size = 75,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 8};
}

}  // namespace kformer::Testing
