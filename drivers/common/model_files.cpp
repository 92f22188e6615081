// SPDX-License-Identifier: MIT
#include "common/model_files.hpp"

#include <fmt/format.h>

namespace kformer::drivers {

namespace {

CheckpointFormat format_of(WeightsFormat format) {
  switch (format) {
    case WeightsFormat::safetensors:
      return CheckpointFormat::safetensors;
    case WeightsFormat::gguf:
      return CheckpointFormat::gguf;
    case WeightsFormat::checkpoint:
      return CheckpointFormat::packed;
    case WeightsFormat::automatic:
      break;
  }
  return CheckpointFormat::automatic;
}

TokenizerFormat format_by_name(const std::filesystem::path& path) {
  if (path.extension() == ".gguf") return TokenizerFormat::gguf;
  if (path.extension() == ".json" || std::filesystem::is_directory(path)) return TokenizerFormat::hf;
  return TokenizerFormat::sentencepiece;
}

TokenizerFormat format_of(TokenizerSource kind, const std::filesystem::path& path) {
  switch (kind) {
    case TokenizerSource::sentencepiece:
      return TokenizerFormat::sentencepiece;
    case TokenizerSource::hf:
      return TokenizerFormat::hf;
    case TokenizerSource::gguf:
      return TokenizerFormat::gguf;
    case TokenizerSource::byte:
      return TokenizerFormat::byte;
    case TokenizerSource::automatic:
      break;
  }
  return format_by_name(path);
}

// Where the tokenizer lies that was published with a checkpoint.
std::filesystem::path beside(const Checkpoint& checkpoint, TokenizerSource kind) {
  if (checkpoint.gguf() && (kind == TokenizerSource::gguf || kind == TokenizerSource::automatic))
    return checkpoint.gguf()->source();
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const bool hf = std::string_view(name) == "tokenizer.json";
    if (kind == TokenizerSource::automatic || (kind == TokenizerSource::hf) == hf)
      if (const auto path = checkpoint.folder() / name; std::filesystem::exists(path)) return path;
  }
  throw FileError(
      fmt::format("{}: no tokenizer found beside the checkpoint (format \"{}\"); set tokenizer.path",
                  checkpoint.folder().string(), name_of(kind)));
}

}  // namespace

Checkpoint open_checkpoint(const WeightsTable& weights) {
  Checkpoint checkpoint = Checkpoint::open(weights.path, format_of(weights.format));
  checkpoint.check_against(checkpoint.model());
  return checkpoint;
}

std::unique_ptr<const Tokenizer> open_tokenizer(const TokenizerTable& table, const Checkpoint& checkpoint) {
  if (table.format == TokenizerSource::byte) return kformer::open_tokenizer(TokenizerFormat::byte, {});
  const auto path = table.path.empty() ? beside(checkpoint, table.format) : table.path;
  return kformer::open_tokenizer(format_of(table.format, path), path);
}

}  // namespace kformer::drivers
