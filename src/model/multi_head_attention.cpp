// SPDX-License-Identifier: MIT
#include "kformer/model/multi_head_attention.hpp"

#include <string>

#include "kformer/core/error.hpp"

namespace kformer {

MultiHeadAttentionConfig MultiHeadAttentionConfig::checked() const {
  const auto require = [](bool condition, const std::string& sentence) {
    if (!condition) throw DimensionMismatch("kformer::MultiHeadAttention: " + sentence);
  };
  const auto positive = [&](const char* name, std::int64_t value) {
    require(value > 0, std::string(name) + " must be positive, got " + std::to_string(value));
  };
  positive("hidden_size", hidden_size);
  positive("num_attention_heads", num_attention_heads);
  MultiHeadAttentionConfig c = *this;
  if (c.num_key_value_heads == 0) c.num_key_value_heads = num_attention_heads;
  if (c.context_size == 0) c.context_size = hidden_size;
  if (c.head_dim == 0) {
    require(hidden_size % num_attention_heads == 0,
            "hidden_size " + std::to_string(hidden_size) + " is not a multiple of num_attention_heads " +
                std::to_string(num_attention_heads) + "; give head_dim");
    c.head_dim = hidden_size / num_attention_heads;
  }
  positive("num_key_value_heads", c.num_key_value_heads);
  positive("context_size", c.context_size);
  positive("head_dim", c.head_dim);
  require(num_attention_heads % c.num_key_value_heads == 0,
          "num_key_value_heads " + std::to_string(c.num_key_value_heads) +
              " does not divide num_attention_heads " + std::to_string(num_attention_heads));
  require(!rope || c.head_dim % 2 == 0,
          "a rotary embedding needs an even head_dim, got " + std::to_string(c.head_dim));
  return c;
}

}  // namespace kformer
