// SPDX-License-Identifier: MIT
#include "kformer/model/llama_config.hpp"

#include <cmath>
#include <string>

#include "kformer/core/error.hpp"

namespace kformer {
namespace {

void require(bool condition, const std::string& sentence) {
  if (!condition) throw DimensionMismatch("kformer::LlamaConfig: " + sentence);
}

void positive(const char* key, std::int64_t value) {
  require(value > 0, std::string(key) + " must be positive, got " + std::to_string(value));
}

}  // namespace

void LlamaConfig::check() const {
  positive("hidden_size", hidden_size);
  positive("intermediate_size", intermediate_size);
  positive("num_attention_heads", num_attention_heads);
  positive("num_key_value_heads", num_key_value_heads);
  positive("head_dim", head_dim);
  require(head_dim % 2 == 0, "head_dim must be even for rotary embedding, got " + std::to_string(head_dim));
  require(num_attention_heads % num_key_value_heads == 0,
          "num_key_value_heads " + std::to_string(num_key_value_heads) + " must divide num_attention_heads " +
              std::to_string(num_attention_heads));
  require(rms_norm_eps >= 0 && std::isfinite(rms_norm_eps),
          "rms_norm_eps must be finite and not negative, got " + std::to_string(rms_norm_eps));
  require(sliding_window >= 0, "sliding_window must not be negative, got " + std::to_string(sliding_window));
}

void LlamaConfig::check_model() const {
  check();
  positive("num_hidden_layers", num_hidden_layers);
  positive("vocab_size", vocab_size);
  require(max_position_embeddings >= 0,
          "max_position_embeddings must not be negative, got " + std::to_string(max_position_embeddings));
}

}  // namespace kformer
