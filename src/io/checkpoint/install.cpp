// SPDX-License-Identifier: MIT
#include "io/checkpoint/install.hpp"

#include <string>

#include "io/checkpoint/shards.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/checkpoint.hpp"

namespace kformer::Impl {

namespace {

namespace fs = std::filesystem;

constexpr const char *config_name = "config.json", *weights_name = "model.safetensors";

// What is not a valid index names no files that could be meant.
void remove_shards(const fs::path& folder) {
  const fs::path index = folder / (std::string("model") + index_suffix);
  if (!fs::exists(index)) return;
  try {
    for (const auto& [tensor, shard] : read_shard_index(index))
      if (shard.ends_with(".safetensors")) fs::remove(folder / shard);
  } catch (const FileError&) {
    return;
  }
  fs::remove(index);
}

}  // namespace

void install_checkpoint(const fs::path& staging, const fs::path& folder, bool keep_tokenizer) {
  fs::remove(folder / config_name);
  for (const std::string_view name : PackedCheckpointWriter::file_names()) {
    const bool is_tokenizer = name != config_name && name != weights_name;
    if (!fs::exists(staging / name) && !(is_tokenizer && keep_tokenizer)) fs::remove(folder / name);
  }
  remove_shards(folder);
  for (const fs::directory_entry& file : fs::directory_iterator(staging))
    if (file.path().filename() != config_name) fs::rename(file.path(), folder / file.path().filename());
  fs::rename(staging / config_name, folder / config_name);
}

}  // namespace kformer::Impl
