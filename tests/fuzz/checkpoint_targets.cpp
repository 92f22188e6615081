// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>
#include <string>

#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/checkpoint/shards.hpp"
#include "io/gguf_bytes.hpp"
#include "io/safetensors_bytes.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/gguf.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer::Testing {

namespace {

void read_safetensors(std::string_view bytes) {
  read_everything(SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "input"));
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
  static constexpr std::array<FuzzTarget, 5> targets{{{"safetensors", read_safetensors},
                                                      {"gguf", read_gguf},
                                                      {"gguf_checkpoint", read_gguf_checkpoint},
                                                      {"shard_index", read_index},
                                                      {"config_json", read_config}}};
  return targets;
}

}  // namespace kformer::Testing
