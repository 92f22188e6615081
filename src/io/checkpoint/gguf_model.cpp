// SPDX-License-Identifier: MIT
#include "io/checkpoint/gguf_model.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/checkpoint/rope_factors.hpp"
#include "io/config/model_text.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"

namespace kformer::Impl {
namespace {

using nlohmann::json;

/// The metadata of a model, whose keys begin with its architecture.
class Metadata {
 public:
  explicit Metadata(const GgufFile& file) : m_file(file), m_architecture(architecture_of(file)) {}

  const std::string& architecture() const { return m_architecture; }

  /// The value for a config.json, null if there is none. An array with one value per layer must have equal
  /// ones.
  json integer(const char* name) const {
    const std::string key = m_architecture + "." + name;
    if (!m_file.has(key)) return nullptr;
    if (!m_file.has_array(key)) return *m_file.find_integer(key);
    const auto values = *m_file.find_integers(key);
    if (values.empty() || std::any_of(values.begin(), values.end(), [&](auto v) { return v != values[0]; }))
      refuse(key, "has different values for different layers, which is not supported");
    return values[0];
  }

  json number(const char* name) const {
    const auto value = m_file.find_number(m_architecture + "." + name);
    return value ? json(shortest(*value)) : json();
  }

  json string(const char* name) const {
    const auto value = m_file.find_string(m_architecture + "." + name);
    return value ? json(*value) : json();
  }

  void require_absent_or(const char* name, const json& value, const json& expected) const {
    if (!value.is_null() && value != expected)
      refuse(m_architecture + "." + name, "is " + value.dump(-1, ' ', false, json::error_handler_t::replace) +
                                              ", only " + expected.dump() + " is supported");
  }

  void require_present(const char* name, const json& value) const {
    if (value.is_null()) refuse(m_architecture + "." + name, "is missing");
  }

  void require_absent(const char* name) const {
    const std::string key = m_architecture + "." + name;
    if (m_file.has(key)) refuse(key, "is not supported");
  }

 private:
  static std::string architecture_of(const GgufFile& file) {
    const auto name = file.find_string("general.architecture");
    if (!name) throw FileError("'" + file.source() + "': metadata 'general.architecture' is missing");
    if (*name != "llama" && *name != "qwen2" && *name != "qwen3")
      throw FileError("'" + file.source() + "': general.architecture is \"" + *name +
                      "\", expected llama, qwen2 or qwen3");
    return *name;
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& reason) const {
    throw FileError("'" + m_file.source() + "': metadata '" + key + "' " + reason);
  }

  /// Floats are stored in 32 bits; their shortest text is what their author wrote: 1e-5, not 9.99999974e-6.
  static double shortest(double value) {
    const auto narrow = static_cast<float>(value);
    if (static_cast<double>(narrow) != value) return value;
    char text[32];
    const auto written = std::to_chars(std::begin(text), std::end(text), narrow);
    std::from_chars(text, written.ptr, value);
    return value;
  }

  const GgufFile& m_file;
  std::string m_architecture;
};

void refuse_other_models(const Metadata& metadata) {
  metadata.require_absent_or("rope.scaling.type", metadata.string("rope.scaling.type"), "none");
  metadata.require_absent_or("rope.scaling.factor", metadata.number("rope.scaling.factor"), 1.0);
  metadata.require_absent_or("rope.scale_linear", metadata.number("rope.scale_linear"), 1.0);
  metadata.require_absent_or("expert_count", metadata.integer("expert_count"), 0);
  for (const char* name : {"attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias", "logit_scale",
                           "residual_scale", "embedding_scale", "attention.sliding_window_pattern"})
    metadata.require_absent(name);
}

json tokens_of(const GgufFile& file, std::initializer_list<const char*> names) {
  json tokens = json::array();
  for (const char* name : names) {
    const auto id = file.find_integer(std::string("tokenizer.ggml.") + name);
    if (id && std::find(tokens.begin(), tokens.end(), *id) == tokens.end()) tokens.push_back(*id);
  }
  return tokens.empty() ? json() : tokens;
}

json config_of(const GgufFile& file, const Metadata& metadata) {
  json config{{"model_type", metadata.architecture()},
              {"hidden_size", metadata.integer("embedding_length")},
              {"intermediate_size", metadata.integer("feed_forward_length")},
              {"num_hidden_layers", metadata.integer("block_count")},
              {"num_attention_heads", metadata.integer("attention.head_count")},
              {"num_key_value_heads", metadata.integer("attention.head_count_kv")},
              {"head_dim", metadata.integer("attention.key_length")},
              {"max_position_embeddings", metadata.integer("context_length")},
              {"rms_norm_eps", metadata.number("attention.layer_norm_rms_epsilon")},
              {"rope_theta", metadata.number("rope.freq_base")},
              {"sliding_window", metadata.integer("attention.sliding_window")},
              {"use_sliding_window", true},
              {"max_window_layers", 0},
              {"attention_bias", file.find("blk.0.attn_q.bias") != nullptr},
              {"tie_word_embeddings", file.find("output.weight") == nullptr},
              {"bos_token_id", tokens_of(file, {"bos_token_id"})},
              {"eos_token_id", tokens_of(file, {"eos_token_id", "eot_token_id", "eom_token_id"})}};
  for (const auto& [name, key] :
       {std::pair("embedding_length", "hidden_size"), std::pair("feed_forward_length", "intermediate_size"),
        std::pair("block_count", "num_hidden_layers"), std::pair("attention.head_count", "num_attention_heads"),
        std::pair("context_length", "max_position_embeddings"),
        std::pair("attention.layer_norm_rms_epsilon", "rms_norm_eps")})
    metadata.require_present(name, config[key]);
  // If absent, these have the defaults of a llama in every family.
  if (config["num_key_value_heads"].is_null()) config["num_key_value_heads"] = config["num_attention_heads"];
  if (config["head_dim"].is_null()) config["head_dim"] = 0;
  const CheckpointTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.empty())
    throw FileError("'" + file.source() + "': tensor 'token_embd.weight' is missing or a scalar");
  config["vocab_size"] = embedding->shape.front();
  return config;
}

void take_rope_factors(const GgufFile& file, ModelTable& layer) {
  const CheckpointTensor* tensor = file.find(rope_factors_name);
  if (tensor == nullptr) return;
  const std::string what = "'" + file.source() + "': the factors of tensor '" + rope_factors_name + "'";
  if (dtype_of_numbers(tensor->type) != DType::f32)
    throw FileError(what + " are of type " + to_string(tensor->type) + ", expected F32");
  std::vector<float> factors(tensor->bytes.size() / sizeof(float));
  if (!factors.empty()) std::memcpy(factors.data(), tensor->bytes.data(), tensor->bytes.size());
  layer.rope.scaling = rope_scaling_of(factors, layer.rope.theta, layer.head_dim, what);
}

}  // namespace

LanguageModelTable model_of_gguf(const GgufFile& file) {
  const Metadata metadata(file);
  refuse_other_models(metadata);
  LanguageModelTable model = model_of_config(config_of(file, metadata), file.source());
  for (const char* name : {"attention.value_length", "rope.dimension_count"})
    metadata.require_absent_or(name, metadata.integer(name), model.head_dim);
  take_rope_factors(file, model);
  return model;
}

}  // namespace kformer::Impl
