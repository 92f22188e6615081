// SPDX-License-Identifier: MIT
#include "generate/model_files.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kformer/io/chat_template.hpp"
#include "kformer/io/gguf_vocabulary.hpp"

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
      fmt::format("{}: there is no tokenizer of format \"{}\" with the checkpoint; name one with "
                  "tokenizer.path",
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

PromptEncoder::PromptEncoder(std::unique_ptr<const Tokenizer> tokenizer, const TokenizerTable& table,
                             const LanguageModelTable& model)
    : m_tokenizer(std::move(tokenizer)),
      m_begin(m_tokenizer->bos()),
      m_adds_begin(table.add_bos.value_or(m_tokenizer->adds_bos())),
      m_end_of_text(m_tokenizer->eos()) {
  if (!m_begin && !model.bos_token_ids.empty()) m_begin = static_cast<std::int32_t>(model.bos_token_ids[0]);
  for (const std::int64_t id : model.eos_token_ids)
    if (std::ranges::count(m_end_of_text, id) == 0) m_end_of_text.push_back(static_cast<std::int32_t>(id));
}

std::vector<std::int32_t> PromptEncoder::encode(const PromptTable& prompt) const {
  const std::string text = prompt_text(prompt);
  std::vector<std::int32_t> ids;
  if (prompt.chat) {
    std::vector<ChatMessage> messages;
    if (prompt.system) messages.push_back({"system", *prompt.system});
    messages.push_back({"user", text});
    const auto chat = ChatTemplate::recognise(m_tokenizer->chat_template());
    ids = m_tokenizer->encode_with_special(apply_chat(chat, messages));
  } else {
    ids = prompt.special_tokens ? m_tokenizer->encode_with_special(text) : m_tokenizer->encode(text);
  }
  // A text of nothing begins all the same.
  if (m_begin && (m_adds_begin || ids.empty()) && (ids.empty() || ids.front() != *m_begin))
    ids.insert(ids.begin(), *m_begin);
  if (ids.empty())
    throw NotSupported(
        fmt::format("prompt '{}' is empty, and the tokenizer has no token for the beginning of a "
                    "text",
                    prompt.name));
  return ids;
}

}  // namespace kformer::drivers
