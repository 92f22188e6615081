// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>
#include <vector>

#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/checkpoint/shards.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/gguf.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/io/safetensors.hpp"

namespace kformer::Testing {

namespace {

// Reads every byte of every tensor, so that a sanitizer sees those outside of the file.
template <class File>
void read_tensors(const File& file, const std::vector<std::string>& names) {
  volatile std::byte last{};
  for (const std::string& name : names)
    for (const std::byte byte : file.find(name)->bytes) last = byte;
}

void read_safetensors(std::string_view bytes) {
  const auto file = SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "input");
  read_tensors(file, file.names());
}

void read_gguf(std::string_view bytes) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "input");
  read_tensors(file, file.names());
  const auto attempt = [](auto&& read) {
    try {
      read();
    } catch (const FileError&) {  // the value has another type
    }
  };
  for (const auto& key : file.keys()) {
    attempt([&] { file.find_string(key); });
    attempt([&] { file.find_integer(key); });
    attempt([&] { file.find_number(key); });
    attempt([&] { file.find_bool(key); });
    attempt([&] { file.find_strings(key); });
    attempt([&] { file.find_integers(key); });
    attempt([&] { file.find_numbers(key); });
  }
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
