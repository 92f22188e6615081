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

}  // namespace kformer::Impl
