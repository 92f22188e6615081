// SPDX-License-Identifier: MIT
#include <map>

#include "io/checkpoint/bitsandbytes.hpp"
#include "io/checkpoint/packed.hpp"
#include "io/checkpoint/shards.hpp"
#include "io/checkpoint/sources.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"

namespace kformer::Impl {
namespace {

namespace fs = std::filesystem;

/// Adds the tensors of one file, and returns its names.
std::vector<std::string> add_file(CheckpointContents& contents, const fs::path& path) {
  const SafetensorsFile& file = contents.files.emplace_back(SafetensorsFile::open(path));
  auto packed = packed_tensors(file, path.string());
  if (!packed.empty()) contents.format = CheckpointFormat::packed;
  auto names = file.names();
  for (const std::string& name : names) {
    const TensorEntry& entry = file.at(name);
    const auto quantised = packed.find(name);
    CheckpointTensor tensor = quantised != packed.end()
                                  ? std::move(quantised->second)
                                  : CheckpointTensor{stored_type_named(entry.dtype), entry.shape, entry.bytes};
    if (!contents.add(name, std::move(tensor)))
      throw FileError("'" + path.string() + "': tensor '" + name + "' is also in another shard");
  }
  return names;
}

void add_shards(CheckpointContents& contents, const fs::path& index) {
  const auto shard_of = read_shard_index(index);
  std::map<std::string, std::vector<std::string>> names_in;
  for (const auto& [tensor, shard] : shard_of) names_in[shard];
  for (auto& [shard, names] : names_in) names = add_file(contents, index.parent_path() / shard);
  for (const auto& [shard, names] : names_in) {
    for (const std::string& name : names) {
      const auto place = shard_of.find(name);
      if (place == shard_of.end() || place->second != shard)
        throw FileError(
            "'" + index.string() + "': tensor '" + name + "' is in shard '" + shard + "', but the index " +
            (place == shard_of.end() ? "has no such tensor" : "says it is in '" + place->second + "'"));
    }
  }
  for (const auto& [tensor, shard] : shard_of)
    if (contents.find_layout(tensor) == nullptr)
      throw FileError("'" + index.string() + "': tensor '" + tensor + "' is not in its shard '" + shard + "'");
}

/// The file or index in a folder.
fs::path weights_in(const fs::path& folder) {
  fs::path whole = folder / "model.safetensors";
  fs::path index = folder / (std::string("model") + index_suffix);
  std::error_code ignored;
  if (fs::exists(whole, ignored)) return whole;
  if (fs::exists(index, ignored)) return index;
  throw FileError("'" + folder.string() + "' has neither model.safetensors nor model" + index_suffix);
}

}  // namespace

std::shared_ptr<CheckpointContents> read_safetensors_checkpoint(const fs::path& path) {
  auto contents = std::make_shared<CheckpointContents>(path);
  contents->format = CheckpointFormat::safetensors;
  const bool is_folder = fs::is_directory(path);
  contents->folder = is_folder ? path : path.parent_path();
  contents->model = read_model_config(contents->folder / "config.json");
  const fs::path weights = is_folder ? weights_in(path) : path;
  if (weights.string().ends_with(index_suffix))
    add_shards(*contents, weights);
  else
    add_file(*contents, weights);
  if (join_bitsandbytes(*contents)) contents->format = CheckpointFormat::packed;
  return contents;
}

}  // namespace kformer::Impl
