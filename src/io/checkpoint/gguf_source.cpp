// SPDX-License-Identifier: MIT
#include "io/checkpoint/gguf_model.hpp"
#include "io/checkpoint/gguf_names.hpp"
#include "io/checkpoint/sources.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

/// Heads of a tensor whose rows are in the order of interleaved RoPE, otherwise 0. Files of architecture
/// llama store q and k this way, other architectures do not.
std::size_t interleaved_heads(const std::string& name, const GgufFile& file, const ModelTable& layer) {
  if (file.find_string("general.architecture") != "llama") return 0;
  if (name.find(".q_proj.") != name.npos) return static_cast<std::size_t>(layer.num_attention_heads);
  if (name.find(".k_proj.") != name.npos) return static_cast<std::size_t>(layer.num_key_value_heads);
  return 0;
}

void add_tensors(CheckpointContents& contents) {
  const GgufFile& file = *contents.gguf;
  for (const std::string& gguf_name : file.names()) {
    if (gguf_name == rope_factors_name) continue;
    const auto refuse = [&](const std::string& reason) {
      throw FileError("'" + file.source() + "': tensor '" + gguf_name + "' " + reason);
    };
    const auto name = published_name(gguf_name);
    if (!name) refuse("belongs to no supported model");
    const CheckpointTensor& tensor = *file.find(gguf_name);
    const std::size_t heads = interleaved_heads(*name, file, contents.model);
    if (heads > 0 &&
        (tensor.shape.empty() || tensor.shape.front() == 0 || tensor.shape.front() % (2 * heads) != 0))
      refuse("does not have a whole number of row pairs for each of " + std::to_string(heads) + " heads");
    contents.add(*name, tensor, heads);
  }
}

}  // namespace

std::shared_ptr<CheckpointContents> read_gguf_checkpoint(const std::filesystem::path& path) {
  auto contents = std::make_shared<CheckpointContents>(path);
  contents->format = CheckpointFormat::gguf;
  contents->folder = path.parent_path();
  contents->gguf = GgufFile::open(path);
  if (contents->gguf->find_integer("split.count").value_or(1) > 1)
    throw FileError("'" + path.string() + "' is one part of a split file; merge the parts first");
  contents->model = model_of_gguf(*contents->gguf);
  add_tensors(*contents);
  return contents;
}

}  // namespace kformer::Impl
