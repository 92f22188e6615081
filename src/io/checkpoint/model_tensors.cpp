// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/checkpoint/contents.hpp"
#include "io/gguf/layout.hpp"
#include "kformer/core/error.hpp"

namespace kformer {
namespace {

using Shape = std::vector<std::size_t>;

constexpr std::size_t most_listed = 20;

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

/// The fault of a tensor of the model, or nothing.
std::string fault_of(const std::string& name, const Shape& shape, const CheckpointTensor* tensor) {
  if (tensor == nullptr) return fmt::format("{} is missing, expected {}", name, text_of(shape));
  if (tensor->shape != shape)
    return fmt::format("{} has shape {}, expected {}", name, text_of(tensor->shape), text_of(shape));
  const bool quantised = quantized_format_of(tensor->type).has_value();
  if (!Impl::tensor_block(tensor->type) || (quantised && shape.size() != 2))
    return fmt::format("{} is of type {}, expected F64, F32, F16{}", name, to_string(tensor->type),
                       shape.size() == 2 ? ", BF16 or a quantised type" : " or BF16");
  return {};
}

/// Whether a tensor that the model does not have would change what its layers compute.
bool changes_layers(const std::string& name) {
  if (!name.starts_with("model.layers.")) return false;
  return name.ends_with(".bias") || name.ends_with("norm.weight");
}

/// Whether there is an output matrix that tied models lack, and another than their embedding.
bool has_other_output(const Impl::CheckpointContents& contents, const LanguageModelTable& model) {
  if (!model.tie_word_embeddings) return false;
  const std::string_view names[] = {"lm_head.weight", "model.embed_tokens.weight"};
  const CheckpointTensor* output = contents.find(names[0]);
  const CheckpointTensor* embedding = contents.find(names[1]);
  if (output == nullptr || embedding == nullptr) return false;
  const bool same = output->type == embedding->type && output->shape == embedding->shape &&
                    std::ranges::equal(output->bytes, embedding->bytes);
  for (const std::string_view name : names) contents.release(name);
  return !same;
}

}  // namespace

std::map<std::string, Shape> layer_tensor_shapes(const ModelTable& layer) {
  const auto n = [](std::int64_t extent) { return static_cast<std::size_t>(extent); };
  const std::size_t hidden = n(layer.hidden_size), inner = n(layer.intermediate_size);
  const std::size_t q = n(layer.num_attention_heads * layer.head_dim);
  const std::size_t kv = n(layer.num_key_value_heads * layer.head_dim);
  std::map<std::string, Shape> shapes{
      {"input_layernorm.weight", {hidden}},      {"self_attn.q_proj.weight", {q, hidden}},
      {"self_attn.k_proj.weight", {kv, hidden}}, {"self_attn.v_proj.weight", {kv, hidden}},
      {"self_attn.o_proj.weight", {hidden, q}},  {"post_attention_layernorm.weight", {hidden}},
      {"mlp.gate_proj.weight", {inner, hidden}}, {"mlp.up_proj.weight", {inner, hidden}},
      {"mlp.down_proj.weight", {hidden, inner}}};
  if (layer.attention_bias) {
    shapes["self_attn.q_proj.bias"] = {q};
    shapes["self_attn.k_proj.bias"] = {kv};
    shapes["self_attn.v_proj.bias"] = {kv};
  }
  if (layer.qk_norm) {
    shapes["self_attn.q_norm.weight"] = {n(layer.head_dim)};
    shapes["self_attn.k_norm.weight"] = {n(layer.head_dim)};
  }
  return shapes;
}

std::map<std::string, Shape> model_tensor_shapes(const LanguageModelTable& model) {
  const auto vocabulary = static_cast<std::size_t>(model.vocab_size);
  const auto hidden = static_cast<std::size_t>(model.hidden_size);
  std::map<std::string, Shape> shapes{{"model.embed_tokens.weight", {vocabulary, hidden}},
                                      {"model.norm.weight", {hidden}}};
  if (!model.tie_word_embeddings) shapes["lm_head.weight"] = {vocabulary, hidden};
  const auto of_layer = layer_tensor_shapes(model);
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer)
    for (const auto& [name, shape] : of_layer) shapes[fmt::format("model.layers.{}.{}", layer, name)] = shape;
  return shapes;
}

void Checkpoint::check_against(const LanguageModelTable& model) const {
  const auto shapes = model_tensor_shapes(model);
  std::vector<std::string> faults;
  for (const auto& [name, shape] : shapes) {
    std::string fault = fault_of(name, shape, m_contents->find_layout(name));
    if (!fault.empty()) faults.push_back(std::move(fault));
  }
  for (const std::string& name : names())
    if (changes_layers(name) && !shapes.contains(name))
      faults.push_back(name + " is present, but the model would ignore it");
  if (has_other_output(*m_contents, model))
    faults.push_back("lm_head.weight differs from model.embed_tokens.weight, but tie_word_embeddings is true");
  if (faults.empty()) return;
  const std::size_t listed = std::min(faults.size(), most_listed);
  std::string text = fmt::format("'{}': the tensors do not match the model:", m_contents->source);
  for (std::size_t i = 0; i < listed; ++i) text += "\n  " + faults[i];
  if (faults.size() > listed) text += fmt::format("\n  and {} more", faults.size() - listed);
  throw FileError(text);
}

}  // namespace kformer
