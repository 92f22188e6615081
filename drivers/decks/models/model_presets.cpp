// SPDX-License-Identifier: MIT
#include "decks/models/model_presets.hpp"

#include <algorithm>

#include "io/nearest_name.hpp"

namespace kformer {

namespace {

// What config.json files of one family differ in.
struct Shape {
  const char* name;
  std::int64_t hidden_size, layers, heads, kv_heads, head_dim, intermediate_size, vocab_size, context;
  bool tied = false;
};

struct Family {
  ModelType type;
  double rms_norm_eps;
  double rope_theta;
  double rope_factor;  // of Llama 3.1 and later; 0: no scaling
  std::vector<Shape> shapes;
};

constexpr std::int64_t k = 1024;

// From the config.json files that the publishers distribute with their weights.
const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {ModelType::llama,
       1e-5,
       10000,
       0,
       {{"llama-2-7b", 4096, 32, 32, 32, 128, 11008, 32000, 4 * k},
        {"llama-2-13b", 5120, 40, 40, 40, 128, 13824, 32000, 4 * k},
        {"llama-2-70b", 8192, 80, 64, 8, 128, 28672, 32000, 4 * k},
        {"tinyllama-1.1b", 2048, 22, 32, 4, 64, 5632, 32000, 2 * k}}},
      {ModelType::llama,
       1e-5,
       500000,
       8,
       {{"llama-3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256, 128 * k},
        {"llama-3.1-70b", 8192, 80, 64, 8, 128, 28672, 128256, 128 * k},
        {"llama-3.1-405b", 16384, 126, 128, 8, 128, 53248, 128256, 128 * k}}},
      {ModelType::llama,
       1e-5,
       500000,
       32,
       {{"llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, 128 * k, true},
        {"llama-3.2-3b", 3072, 28, 24, 8, 128, 8192, 128256, 128 * k, true}}},
      {ModelType::llama,
       1e-5,
       100000,
       0,
       {{"smollm2-135m", 576, 30, 9, 3, 64, 1536, 49152, 8 * k, true},
        {"smollm2-360m", 960, 32, 15, 5, 64, 2560, 49152, 8 * k, true}}},
      {ModelType::llama, 1e-5, 130000, 0, {{"smollm2-1.7b", 2048, 24, 32, 32, 64, 8192, 49152, 8 * k, true}}},
      {ModelType::mistral, 1e-5, 1000000, 0, {{"mistral-7b", 4096, 32, 32, 8, 128, 14336, 32768, 32 * k}}},
      {ModelType::qwen2,
       1e-6,
       1000000,
       0,
       {{"qwen2.5-0.5b", 896, 24, 14, 2, 64, 4864, 151936, 32 * k, true},
        {"qwen2.5-1.5b", 1536, 28, 12, 2, 128, 8960, 151936, 128 * k, true},
        {"qwen2.5-3b", 2048, 36, 16, 2, 128, 11008, 151936, 32 * k, true},
        {"qwen2.5-7b", 3584, 28, 28, 4, 128, 18944, 152064, 128 * k}}},
      {ModelType::qwen2,
       1e-5,
       1000000,
       0,
       {{"qwen2.5-14b", 5120, 48, 40, 8, 128, 13824, 152064, 128 * k},
        {"qwen2.5-32b", 5120, 64, 40, 8, 128, 27648, 152064, 128 * k},
        {"qwen2.5-72b", 8192, 80, 64, 8, 128, 29568, 152064, 128 * k}}},
      {ModelType::qwen3,
       1e-6,
       1000000,
       0,
       {{"qwen3-0.6b", 1024, 28, 16, 8, 128, 3072, 151936, 40 * k, true},
        {"qwen3-1.7b", 2048, 28, 16, 8, 128, 6144, 151936, 40 * k, true},
        {"qwen3-4b", 2560, 36, 32, 8, 128, 9728, 151936, 40 * k, true},
        {"qwen3-8b", 4096, 36, 32, 8, 128, 12288, 151936, 40 * k},
        {"qwen3-14b", 5120, 40, 40, 8, 128, 17408, 151936, 40 * k},
        {"qwen3-32b", 5120, 64, 64, 8, 128, 25600, 151936, 40 * k}}}};
  return all;
}

LanguageModelTable table_of(const Family& family, const Shape& shape) {
  LanguageModelTable model;
  model.model_type = family.type;
  model.hidden_size = shape.hidden_size;
  model.num_hidden_layers = shape.layers;
  model.num_attention_heads = shape.heads;
  model.num_key_value_heads = shape.kv_heads;
  model.head_dim = shape.head_dim;
  model.intermediate_size = shape.intermediate_size;
  model.vocab_size = shape.vocab_size;
  model.max_position_embeddings = shape.context;
  model.tie_word_embeddings = shape.tied;
  model.rms_norm_eps = family.rms_norm_eps;
  model.rope.theta = family.rope_theta;
  model.attention_bias = family.type == ModelType::qwen2;
  model.qk_norm = family.type == ModelType::qwen3;
  if (family.rope_factor > 0) {
    model.rope.scaling.rope_type = RopeType::llama3;
    model.rope.scaling.factor = family.rope_factor;
  }
  return model;
}

// What a published name says of the shape.
std::string name_of_shape(std::string_view name) {
  std::string shape = Impl::lower(name.substr(name.rfind('/') + 1));
  if (shape.starts_with("meta-")) shape.erase(0, 5);
  // Trained further, models have the same shape.
  for (const std::string_view word : {"-instruct", "-chat", "-hf", "-base"}) {
    const std::size_t begin = shape.find(word), end = begin + word.size();
    if (begin != std::string::npos && (end == shape.size() || shape[end] == '-'))
      shape.erase(begin, word.size());
  }
  // Other versions of these have other vocabularies.
  if (shape == "mistral-7b-v0.3" || shape == "tinyllama-1.1b-v1.0") shape.resize(shape.rfind('-'));
  return shape;
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets = [] {
    std::vector<ModelPreset> made;
    for (const Family& family : families())
      for (const Shape& shape : family.shapes) made.push_back({shape.name, table_of(family, shape)});
    return made;
  }();
  return presets;
}

const ModelPreset* model_preset(std::string_view name) {
  const auto found = std::ranges::find(model_presets(), name_of_shape(name), &ModelPreset::name);
  return found == model_presets().end() ? nullptr : &*found;
}

}  // namespace kformer
