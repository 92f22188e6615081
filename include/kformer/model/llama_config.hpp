// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kformer/core/types/rope.hpp"

namespace kformer {

/// A model of the Llama family (Llama, Mistral, Qwen2, Qwen3), with the keys of published config.json files.
/// What belongs to a layer comes first; the rest may be absent where only a layer is wanted.
struct LlamaConfig {
  std::int64_t hidden_size = 0;          ///< features of a token
  std::int64_t intermediate_size = 0;    ///< features inside the MLP
  std::int64_t num_attention_heads = 0;  ///< query heads
  std::int64_t num_key_value_heads = 0;  ///< heads of keys and values; divides the query heads
  std::int64_t head_dim = 0;             ///< features of a head; even
  double rms_norm_eps = 1e-5;            ///< added to the mean square
  RopeOptions rope{};                    ///< base, scaling and pairing of the rotary embedding
  bool attention_bias = false;           ///< biases on the q, k and v projections (Qwen2)
  bool qk_norm = false;                  ///< RMSNorm of every query and key head before the rotation (Qwen3)
  std::int64_t sliding_window = 0;       ///< keys a query sees, itself included; 0 means all before it

  std::int64_t num_hidden_layers = 0;        ///< decoder layers of the model
  std::int64_t vocab_size = 0;               ///< rows of the embedding
  std::int64_t max_position_embeddings = 0;  ///< positions the model was trained for; 0 means unknown
  bool tie_word_embeddings = false;          ///< the output matrix is the embedding

  /// Rows of the fused q, k, v projection.
  std::int64_t qkv_size() const { return (num_attention_heads + 2 * num_key_value_heads) * head_dim; }
  /// Features of all query heads.
  std::int64_t attention_size() const { return num_attention_heads * head_dim; }
  /// Elements of all weights of a layer.
  std::int64_t parameter_count() const {
    return (qkv_size() + attention_size()) * hidden_size + 3 * intermediate_size * hidden_size +
           2 * hidden_size + (attention_bias ? qkv_size() : 0) + (qk_norm ? 2 * head_dim : 0);
  }
  /// Elements of all weights of the model.
  std::int64_t model_parameter_count() const {
    return num_hidden_layers * parameter_count() +
           hidden_size * (1 + vocab_size * (tie_word_embeddings ? 1 : 2));
  }
  /// Checks the values that a layer needs.
  /// \throws DimensionMismatch naming the key that is out of range
  void check() const;
  /// Checks the values that the model needs.
  /// \throws DimensionMismatch naming the key that is out of range
  void check_model() const;

  /// Whether all keys are equal.
  bool operator==(const LlamaConfig&) const = default;
};

}  // namespace kformer
