// SPDX-License-Identifier: MIT
#include "layer/layer_tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <functional>

#include "io/config/model_schema.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer::drivers {

namespace {

using Shape = std::vector<std::size_t>;

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

// Metadata are strings; a value that is not a number is an error, not a default.
template <class Number>
void take(const SafetensorsFile& in, const std::filesystem::path& file, const ModelTable& model,
          const char* key, Number& value) {
  if (model.known.contains(key)) return;
  const auto found = in.metadata().find(key);
  if (found == in.metadata().end()) return;
  const std::string& text = found->second;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw FileError(fmt::format("{}: metadata '{}' must be a number, got \"{}\"", file.string(), key, text));
}

// The limits that decks have for the same numbers.
struct LimitChecks {
  std::function<void(const std::string&)> complain;

  template <class T>
  void key(const Impl::schema::Key& key, const T& value) {
    if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>)
      if (!Impl::schema::within(static_cast<double>(value), key.range))
        complain(fmt::format("{} must be {}, got {}", key.name,
                             expectation(Impl::schema::type_of<T>(key), key.range), value));
  }
  template <class T>
  void table(const Impl::schema::TableKey&, T&) {}  // rope_scaling, which no file has
};

void take_metadata(const SafetensorsFile& in, const std::filesystem::path& file, ModelTable& model) {
  take(in, file, model, "hidden_size", model.hidden_size);
  take(in, file, model, "intermediate_size", model.intermediate_size);
  take(in, file, model, "num_attention_heads", model.num_attention_heads);
  take(in, file, model, "num_key_value_heads", model.num_key_value_heads);
  take(in, file, model, "head_dim", model.head_dim);
  take(in, file, model, "rms_norm_eps", model.rms_norm_eps);
  take(in, file, model, "rope_theta", model.rope.theta);
  take(in, file, model, "sliding_window", model.sliding_window);
  const auto complain = [&](const std::string& what) {
    throw FileError(fmt::format("{}: {}; set the key in the deck's [model] or in the file's metadata",
                                file.string(), what));
  };
  if (model.hidden_size <= 0) complain("hidden_size is unknown");
  if (model.intermediate_size <= 0) complain("intermediate_size is unknown");
  if (model.num_attention_heads <= 0) complain("num_attention_heads is unknown");
  LimitChecks limits{complain};
  Impl::schema::describe(limits, model);
  // The presence of biases identifies Qwen2.
  if (!model.known.contains("attention_bias") && in.find("self_attn.q_proj.bias")) {
    model.attention_bias = true;
    model.model_type = ModelType::qwen2;
  }
  // The presence of norms identifies Qwen3.
  if (!model.known.contains("model_type") && in.find("self_attn.q_norm.weight"))
    model.model_type = ModelType::qwen3;
  for (const ModelFault& fault : complete_model(model)) complain(fault.key + ": " + fault.message);
}

}  // namespace

LayerTensors read_layer_tensors(const std::filesystem::path& file, ModelTable& model, bool needs_gradient) {
  const SafetensorsFile in = SafetensorsFile::open(file);
  take_metadata(in, file, model);
  const Shape hidden_states = in.at("hidden_states").shape;
  if (hidden_states.size() != 3 || hidden_states[2] != static_cast<std::size_t>(model.hidden_size))
    throw FileError(fmt::format("{}: hidden_states has shape {}, expected [batch,seq,{}]", file.string(),
                                text_of(hidden_states), model.hidden_size));
  auto shapes = layer_tensor_shapes(model);
  shapes["hidden_states"] = hidden_states;
  if (needs_gradient) shapes["grad_output"] = hidden_states;

  std::string faults;
  for (const auto& [name, shape] : shapes) {
    const TensorEntry* entry = in.find(name);
    if (entry == nullptr)
      faults += fmt::format("\n  {} is missing, expected {}", name, text_of(shape));
    else if (entry->shape != shape)
      faults += fmt::format("\n  {} has shape {}, expected {}", name, text_of(entry->shape), text_of(shape));
  }
  // A gradient that no case needs is no fault.
  for (const std::string& name : in.names())
    if (!shapes.contains(name) && name != "grad_output")
      faults += fmt::format("\n  {} is not a tensor of this layer", name);
  if (!faults.empty())
    throw FileError(
        fmt::format("{}: the tensors do not match the model (hidden_size {}, intermediate_size {}, "
                    "num_attention_heads {}, num_key_value_heads {}, head_dim {}):{}",
                    file.string(), model.hidden_size, model.intermediate_size, model.num_attention_heads,
                    model.num_key_value_heads, model.head_dim, faults));
  LayerTensors tensors;
  for (const auto& [name, shape] : shapes) tensors.arrays[name] = {shape, in.read_f64(name)};
  tensors.shape = {static_cast<std::int64_t>(hidden_states[0]), static_cast<std::int64_t>(hidden_states[1])};
  return tensors;
}

}  // namespace kformer::drivers
