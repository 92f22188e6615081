// SPDX-License-Identifier: MIT
#include "language_model/model_files.hpp"

#include <fmt/format.h>

namespace kformer::drivers {

namespace {

// The path of the tokenizer beside a checkpoint.
std::filesystem::path beside(const Checkpoint& checkpoint, TokenizerFormat kind) {
  if (checkpoint.gguf() && (kind == TokenizerFormat::gguf || kind == TokenizerFormat::automatic))
    return checkpoint.gguf()->source();
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const bool hf = std::string_view(name) == "tokenizer.json";
    if (kind == TokenizerFormat::automatic || (kind == TokenizerFormat::hf) == hf)
      if (const auto path = checkpoint.folder() / name; std::filesystem::exists(path)) return path;
  }
  throw FileError(
      fmt::format("{}: no tokenizer found beside the checkpoint (format \"{}\"); set tokenizer.path",
                  checkpoint.folder().string(), name_of(kind)));
}

}  // namespace

Checkpoint open_checkpoint(const WeightsTable& weights) {
  Checkpoint checkpoint = Checkpoint::open(weights.path, weights.format);
  checkpoint.check_against(checkpoint.model());
  return checkpoint;
}

AdapterCheckpoint open_adapter(const std::filesystem::path& folder, const LlamaConfig& model) {
  AdapterCheckpoint adapter = AdapterCheckpoint::open(folder);
  adapter.check_against(model);
  return adapter;
}

std::unique_ptr<const Tokenizer> open_tokenizer(const TokenizerTable& table, const Checkpoint& checkpoint) {
  if (table.format == TokenizerFormat::byte) return kformer::open_tokenizer(TokenizerFormat::byte, {});
  const auto path = table.path.empty() ? beside(checkpoint, table.format) : table.path;
  return kformer::open_tokenizer(table.format, path);
}

}  // namespace kformer::drivers
