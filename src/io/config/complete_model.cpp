// SPDX-License-Identifier: MIT
#include "io/config/complete_model.hpp"

#include <fmt/format.h>

#include "io/config/model_schema.hpp"

namespace kformer {

std::vector<ModelFault> Impl::schema::model_faults(const ModelTable& model) {
  std::vector<ModelFault> faults;
  const std::int64_t heads = model.num_attention_heads;
  const std::int64_t kv_heads = model.num_key_value_heads;
  if (heads > 0 && kv_heads > 0 && heads % kv_heads != 0)
    faults.push_back(
        {"num_key_value_heads", fmt::format("= {} does not divide num_attention_heads = {}", kv_heads, heads)});
  if (static_cast<double>(heads) * static_cast<double>(model.head_dim) > most_features)
    faults.push_back({"head_dim", fmt::format("= {} gives the {} query heads more than {} features together",
                                              model.head_dim, heads, most_features)});
  if (model.head_dim % 2 != 0)
    faults.push_back(
        {"head_dim", fmt::format("= {} is odd, but RoPE rotates pairs of features", model.head_dim)});
  if (model.attention_bias && model.model_type != ModelType::qwen2)
    faults.push_back(
        {"attention_bias", fmt::format("= true needs model_type = \"qwen2\", got \"{}\"; other families have "
                                       "no biases, or also one on the output",
                                       name_of(model.model_type))});
  const RopeScaling& scaling = model.rope.scaling;
  if (scaling.rope_type == RopeType::llama3 && scaling.high_freq_factor <= scaling.low_freq_factor)
    faults.push_back({"rope_scaling", fmt::format("needs high_freq_factor > low_freq_factor, got {} and {}",
                                                  scaling.high_freq_factor, scaling.low_freq_factor)});
  return faults;
}

std::vector<ModelFault> complete_model(ModelTable& model) {
  std::vector<ModelFault> faults;
  const std::int64_t heads = model.num_attention_heads;
  model.qk_norm = model.model_type == ModelType::qwen3;
  if (model.num_key_value_heads == 0) model.num_key_value_heads = heads;
  if (model.head_dim == 0 && heads > 0) {
    if (model.hidden_size % heads == 0)
      model.head_dim = model.hidden_size / heads;
    else
      faults.push_back(
          {"head_dim", fmt::format("must be given, because num_attention_heads = {} does not divide "
                                   "hidden_size = {}",
                                   heads, model.hidden_size)});
  }
  for (auto& fault : Impl::schema::model_faults(model)) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace kformer
