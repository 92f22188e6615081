// SPDX-License-Identifier: MIT
#include "kformer/model/layer_weights.hpp"

namespace kformer::Impl {

std::vector<ParameterRows> qkv_parameters(const LlamaConfig& config, const char* suffix) {
  const std::int64_t q = config.attention_size(), kv = config.num_key_value_heads * config.head_dim;
  const auto named = [&](const char* projection) { return std::string("self_attn.") + projection + suffix; };
  return {{named("q_proj."), 0, q}, {named("k_proj."), q, kv}, {named("v_proj."), q + kv, kv}};
}

std::vector<ParameterRows> gate_up_parameters(const LlamaConfig& config) {
  const std::int64_t inner = config.intermediate_size;
  return {{"mlp.gate_proj.weight", 0, inner}, {"mlp.up_proj.weight", inner, inner}};
}

std::set<std::string, std::less<>> matrix_names(const LlamaConfig& config) {
  std::set<std::string, std::less<>> names{"model.embed_tokens.weight"};
  if (!config.tie_word_embeddings) names.insert("lm_head.weight");
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    const std::string prefix = "model.layers." + std::to_string(l) + ".";
    for (const auto& parts : {qkv_parameters(config, "weight"), gate_up_parameters(config)})
      for (const ParameterRows& part : parts) names.insert(prefix + part.name);
    for (const char* name : {"self_attn.o_proj.weight", "mlp.down_proj.weight"}) names.insert(prefix + name);
  }
  return names;
}

}  // namespace kformer::Impl
