// SPDX-License-Identifier: MIT
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/safetensors_bytes.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/adapter.hpp"

namespace kformer::Testing {

namespace {

constexpr LlamaConfig model{.hidden_size = 4,
                            .intermediate_size = 2,
                            .num_attention_heads = 2,
                            .num_key_value_heads = 1,
                            .head_dim = 2,
                            .num_hidden_layers = 1,
                            .vocab_size = 4};

// What programs do with an adapter that they accept.
void use(const std::filesystem::path& path) {
  const auto adapter = AdapterCheckpoint::open(path, model);
  for (const auto& [name, shape] : adapter_tensor_shapes(model, adapter.lora())) {
    std::size_t count = 1;
    for (const std::size_t extent : shape) count *= extent;
    touch(adapter.at(name).bytes);
    if (adapter.values(name).size() != count) throw std::logic_error("not as many values as " + name + " has");
  }
  adapter_config_json(adapter.lora(), adapter.description());
}

// Ones, for q and v with rank 2.
std::string sound_tensors() {
  std::string header = "{", data;
  for (const auto& [name, rows, columns] : {std::tuple("self_attn.q_proj.lora_A", 2, 4),
                                            {"self_attn.q_proj.lora_B", 4, 2},
                                            {"self_attn.v_proj.lora_A", 2, 4},
                                            {"self_attn.v_proj.lora_B", 2, 2}}) {
    const std::size_t begin = data.size();
    for (int i = 0; i < rows * columns; ++i) data += "\x80\x3F";
    header += (begin > 0 ? ",\"" : "\"") + std::string(adapter_prefix) + "model.layers.0." + name +
              R"(.weight":{"dtype":"BF16","shape":[)" + std::to_string(rows) + "," + std::to_string(columns) +
              R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  return safetensors_bytes(header + "}", data);
}

void read_config(std::string_view bytes) {
  static const InputFolder folder(adapter_config_name, {{adapter_weights_name, sound_tensors()}});
  folder.put(bytes);
  use(folder.folder());
}

// Magnitudes, and a rank of its own for one map.
constexpr std::string_view sound_config = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_dora": true,
  "rank_pattern": {"v_proj": 1}, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj"]})";

void read_tensors(std::string_view bytes) {
  static const InputFolder folder(adapter_weights_name, {{adapter_config_name, sound_config}});
  folder.put(bytes);
  use(folder.folder());
}

void read_gguf(std::string_view bytes) {
  static const InputFolder folder(gguf_adapter_name);
  use(folder.put(bytes));
}

}  // namespace

std::span<const FuzzTarget> adapter_targets() {
  static constexpr std::array<FuzzTarget, 3> targets{
      {{"adapter_config", read_config}, {"adapter_tensors", read_tensors}, {"adapter_gguf", read_gguf}}};
  return targets;
}

}  // namespace kformer::Testing
