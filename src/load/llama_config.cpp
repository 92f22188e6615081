// SPDX-License-Identifier: MIT
#include "kformer/load/llama_config.hpp"

namespace kformer {

LlamaConfig llama_config(const ModelTable& model) {
  LlamaConfig config;
  config.hidden_size = model.hidden_size;
  config.intermediate_size = model.intermediate_size;
  config.num_attention_heads = model.num_attention_heads;
  config.num_key_value_heads = model.num_key_value_heads;
  config.head_dim = model.head_dim;
  config.rms_norm_eps = model.rms_norm_eps;
  config.rope.theta = model.rope_theta;
  if (model.rope_scaling.rope_type == RopeType::llama3)
    config.rope.scaling = {model.rope_scaling.factor, model.rope_scaling.low_freq_factor,
                           model.rope_scaling.high_freq_factor,
                           model.rope_scaling.original_max_position_embeddings};
  config.attention_bias = model.attention_bias;
  config.qk_norm = model.model_type == ModelType::qwen3;
  config.sliding_window = model.sliding_window;
  config.check();
  return config;
}

LlamaConfig llama_config(const LanguageModelTable& model) {
  LlamaConfig config = llama_config(model.layer);
  config.qk_norm = model.qk_norm;
  config.num_hidden_layers = model.num_hidden_layers;
  config.vocab_size = model.vocab_size;
  config.max_position_embeddings = model.max_position_embeddings;
  config.tie_word_embeddings = model.tie_word_embeddings;
  config.check_model();
  return config;
}

}  // namespace kformer
