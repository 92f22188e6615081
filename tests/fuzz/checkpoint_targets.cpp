// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>
#include <string>

#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/checkpoint/packed.hpp"
#include "io/checkpoint/shards.hpp"
#include "io/gguf_bytes.hpp"
#include "io/safetensors_bytes.hpp"
#include "io/touch.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/gguf.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer::Testing {

namespace {

void read_safetensors(std::string_view bytes) {
  read_everything(SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "input"));
}

void read_packed(std::string_view bytes) {
  const auto file = SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "input");
  for (const auto& [name, tensor] : Impl::packed_tensors(file, "input")) touch(tensor.bytes);
}

constexpr std::string_view sound_config =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 1, "vocab_size": 4, "max_position_embeddings": 16,
        "tie_word_embeddings": true})";

// The weights of a whole checkpoint, as they are or packed; the configuration beside them is sound.
void read_weights(std::string_view bytes) {
  static const InputFolder folder("model.safetensors", {{"config.json", sound_config}});
  const auto checkpoint = Checkpoint::open(folder.put(bytes));
  checkpoint.check_against(checkpoint.model());
  for (const std::string& name : checkpoint.names()) touch(checkpoint.at(name).bytes);
}

// Any tensors in groups, whether or not a model has them.
void read_bitsandbytes(std::string_view bytes) {
  static const InputFolder folder("model.safetensors", {{"config.json", sound_config}});
  const auto checkpoint = Checkpoint::open(folder.put(bytes));
  for (const std::string& name : checkpoint.names()) touch(checkpoint.at(name).bytes);
}

void read_gguf(std::string_view bytes) {
  read_everything(GgufFile::parse(std::as_bytes(std::span(bytes)), "input"));
}

void read_gguf_checkpoint(std::string_view bytes) {
  static InputFolder folder("model.gguf");
  const auto checkpoint = Checkpoint::open(folder.put(bytes));
  checkpoint.check_against(checkpoint.model());
}

void read_index(std::string_view bytes) {
  static InputFolder folder("model.safetensors.index.json");
  Impl::read_shard_index(folder.put(bytes));
}

void read_config(std::string_view bytes) {
  static InputFolder folder("config.json");
  model_tensor_shapes(read_model_config(folder.put(bytes)));
}

}  // namespace

std::span<const FuzzTarget> checkpoint_targets() {
  static constexpr std::array<FuzzTarget, 8> targets{{{"safetensors", read_safetensors},
                                                      {"packed", read_packed},
                                                      {"safetensors_checkpoint", read_weights},
                                                      {"bitsandbytes", read_bitsandbytes},
                                                      {"gguf", read_gguf},
                                                      {"gguf_checkpoint", read_gguf_checkpoint},
                                                      {"shard_index", read_index},
                                                      {"config_json", read_config}}};
  return targets;
}

}  // namespace kformer::Testing
