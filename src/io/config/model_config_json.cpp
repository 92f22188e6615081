// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "kformer/core/enum_names.hpp"
#include "kformer/io/model_table.hpp"

namespace kformer {
namespace {

using Json = nlohmann::ordered_json;

// The class of a family in transformers.
const char* architecture(ModelType type) {
  switch (type) {
    case ModelType::mistral:
      return "MistralForCausalLM";
    case ModelType::qwen2:
      return "Qwen2ForCausalLM";
    case ModelType::qwen3:
      return "Qwen3ForCausalLM";
    case ModelType::llama:
      break;
  }
  return "LlamaForCausalLM";
}

// Llama and Mistral have the same layers, and other programs know windows of the latter alone.
ModelType family_for_others(const LanguageModelTable& model) {
  const bool has_window = model.sliding_window != 0;
  return has_window && model.model_type == ModelType::llama ? ModelType::mistral : model.model_type;
}

Json ids(const std::vector<std::int64_t>& tokens) {
  if (tokens.empty()) return nullptr;
  return tokens.size() == 1 ? Json(tokens.front()) : Json(tokens);
}

Json rope_scaling(const RopeScaling& scaling) {
  if (scaling.rope_type == RopeType::none) return nullptr;
  return {{"rope_type", name_of(scaling.rope_type)},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
}

}  // namespace

std::string model_config_json(const LanguageModelTable& model) {
  const ModelType family = family_for_others(model);
  const Json config{{"architectures", Json::array({architecture(family)})},
                    {"model_type", name_of(family)},
                    {"hidden_size", model.hidden_size},
                    {"intermediate_size", model.intermediate_size},
                    {"num_hidden_layers", model.num_hidden_layers},
                    {"num_attention_heads", model.num_attention_heads},
                    {"num_key_value_heads", model.num_key_value_heads},
                    {"head_dim", model.head_dim},
                    {"vocab_size", model.vocab_size},
                    {"max_position_embeddings", model.max_position_embeddings},
                    {"rms_norm_eps", model.rms_norm_eps},
                    {"hidden_act", name_of(model.hidden_act)},
                    {"rope_theta", model.rope.theta},
                    {"rope_scaling", rope_scaling(model.rope.scaling)},
                    {"attention_bias", model.attention_bias},
                    {"sliding_window", model.sliding_window == 0 ? Json() : Json(model.sliding_window)},
                    {"use_sliding_window", model.sliding_window != 0},
                    {"max_window_layers", 0},
                    {"tie_word_embeddings", model.tie_word_embeddings},
                    {"bos_token_id", ids(model.bos_token_ids)},
                    {"eos_token_id", ids(model.eos_token_ids)}};
  return config.dump(2) + "\n";
}

}  // namespace kformer
