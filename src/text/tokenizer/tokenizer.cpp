// SPDX-License-Identifier: MIT
#include "kformer/text/tokenizer.hpp"

#include "io/utf8.hpp"
#include "kformer/core/error.hpp"
#include "text/base/file.hpp"
#include "text/tokenizer/formats.hpp"
#include "text/tokenizer/library_errors.hpp"

namespace kformer {
namespace {

/// Adds the bytes of a token to `bytes`. The start of a text ends with the first token that has text of its
/// own, even if the start took all of it.
void append_token(const Tokenizer& tokenizer, std::int32_t id, bool& at_start, std::string& bytes) {
  bytes += tokenizer.token_bytes(id, at_start);
  at_start = at_start && tokenizer.token_bytes(id, false).empty();
}

}  // namespace

Tokenizer::~Tokenizer() = default;

std::string Tokenizer::decode_bytes(std::span<const std::int32_t> ids) const {
  std::string bytes;
  bool at_start = true;
  for (const std::int32_t id : ids) append_token(*this, id, at_start, bytes);
  return bytes;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  return Impl::repair_utf8(decode_bytes(ids));
}

ChatTemplate chat_template_of(const Tokenizer& tokenizer, std::optional<ChatStyle> style) {
  ChatTemplate chat;
  if (style)
    chat.style = *style;
  else
    chat = ChatTemplate::recognise(tokenizer.chat_template());
  if (!tokenizer.eos().empty()) chat.eos = tokenizer.piece(tokenizer.eos().front());
  if (tokenizer.bos()) chat.bos = tokenizer.piece(*tokenizer.bos());
  return chat;
}

TokenStream::TokenStream(const Tokenizer& tokenizer, std::span<const std::int32_t> before)
    : m_tokenizer(&tokenizer) {
  for (const std::int32_t id : before) push(id);
  m_unfinished.clear();
}

std::string TokenStream::push(std::int32_t id) {
  append_token(*m_tokenizer, id, m_at_start, m_unfinished);
  const std::size_t finished = m_unfinished.size() - Impl::unfinished_bytes(m_unfinished);
  std::string text = Impl::repair_utf8(std::string_view(m_unfinished).substr(0, finished));
  m_unfinished.erase(0, finished);
  return text;
}

std::string TokenStream::finish() {
  std::string text = Impl::repair_utf8(m_unfinished);
  m_unfinished.clear();
  return text;
}

namespace {

TokenizerFormat format_of(const std::filesystem::path& path) {
  if (path.extension() == ".gguf") return TokenizerFormat::gguf;
  if (path.extension() == ".json" || std::filesystem::is_directory(path)) return TokenizerFormat::hf;
  return TokenizerFormat::sentencepiece;
}

std::unique_ptr<const Tokenizer> open_as(TokenizerFormat format, const std::filesystem::path& path) {
  switch (format == TokenizerFormat::automatic ? format_of(path) : format) {
    case TokenizerFormat::automatic:
      break;
    case TokenizerFormat::sentencepiece:
      return Impl::tokenizers::open_sentencepiece(path);
    case TokenizerFormat::hf:
      return Impl::tokenizers::open_hf(path);
    case TokenizerFormat::gguf:
      return Impl::tokenizers::open_gguf(path);
    case TokenizerFormat::byte:
      return Impl::tokenizers::make_byte();
  }
  throw NotSupported("kformer::open_tokenizer: unknown format");
}

}  // namespace

std::unique_ptr<const Tokenizer> open_tokenizer(TokenizerFormat format, const std::filesystem::path& path) {
  return Impl::tokenizers::opened(path, [&] { return open_as(format, path); });
}

}  // namespace kformer
