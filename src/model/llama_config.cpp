// SPDX-License-Identifier: MIT
#include "kformer/model/llama_config.hpp"

#include <string>

namespace kformer {

void LlamaConfig::check() const {
  const auto require = [](bool condition, const std::string& sentence) {
    if (!condition) throw DimensionMismatch("kformer::LlamaConfig: " + sentence);
  };
  const auto positive = [&](const char* key, std::int64_t value) {
    require(value > 0, std::string(key) + " must be positive, got " + std::to_string(value));
  };
  positive("hidden_size", hidden_size);
  positive("intermediate_size", intermediate_size);
  positive("num_attention_heads", num_attention_heads);
  positive("num_key_value_heads", num_key_value_heads);
  positive("head_dim", head_dim);
  require(head_dim % 2 == 0, "head_dim must be even for rotary embedding, got " + std::to_string(head_dim));
  require(num_attention_heads % num_key_value_heads == 0,
          "num_key_value_heads " + std::to_string(num_key_value_heads) + " must divide num_attention_heads " +
              std::to_string(num_attention_heads));
  require(rms_norm_eps >= 0, "rms_norm_eps must not be negative, got " + std::to_string(rms_norm_eps));
  require(sliding_window >= 0, "sliding_window must not be negative, got " + std::to_string(sliding_window));
}

}  // namespace kformer
