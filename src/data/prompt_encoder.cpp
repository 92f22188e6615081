// SPDX-License-Identifier: MIT
#include "data/prompt_encoder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kformer/core/error.hpp"

namespace kformer::Impl::data {

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const PromptWriting& writing)
    : m_tokenizer(&tokenizer),
      m_text(tokenizer),
      m_writing(writing),
      m_bos(tokenizer.bos() ? tokenizer.bos() : writing.bos),
      m_add_bos(writing.add_bos.value_or(tokenizer.adds_bos())) {}

std::vector<std::int32_t> PromptEncoder::prompt(std::string_view text) const {
  std::vector<std::int32_t> ids;
  // An empty text still has a beginning.
  if (m_bos && (m_add_bos || text.empty())) ids.push_back(*m_bos);
  // The token is no part of the text, which begins as it does without.
  m_text.append(text, TextEncoder::After::nothing, ids);
  return ids;
}

std::vector<std::int32_t> PromptEncoder::prompt(std::span<const ChatMessage> messages) {
  TokenDocuments documents;
  ChatEncoder& encoder = chat_encoder();
  encoder.append_pieces(chat_prompt(encoder.chat(), messages), documents);
  return documents.tokens;
}

void PromptEncoder::append(std::string_view text, std::string_view completion,
                           TokenDocuments& documents) const {
  const auto ids = prompt(text);
  documents.tokens.insert(documents.tokens.end(), ids.begin(), ids.end());
  documents.learnt.resize(documents.tokens.size(), 0);
  m_text.append(completion, text.empty() ? TextEncoder::After::nothing : TextEncoder::After::text,
                documents.tokens);
  if (!m_tokenizer->eos().empty()) documents.tokens.push_back(m_tokenizer->eos().front());
  documents.learnt.resize(documents.tokens.size(), 1);
  documents.end_document();
}

void PromptEncoder::append(std::span<const ChatMessage> prompt, std::span<const ChatMessage> completion,
                           TokenDocuments& documents) {
  ChatEncoder& encoder = chat_encoder();
  if (prompt.empty()) return encoder.append(completion, documents);
  const auto known = std::ranges::count_if(chat_pieces(encoder.chat(), prompt), &ChatPiece::answer);
  std::vector<ChatMessage> messages(prompt.begin(), prompt.end());
  messages.insert(messages.end(), completion.begin(), completion.end());
  encoder.append_pieces(chat_pieces(encoder.chat(), messages), documents, known);
}

void PromptEncoder::check(std::span<const std::int32_t> ids, const JsonLine& line) const {
  if (m_writing.vocab_size <= 0) return;
  for (const std::int32_t id : ids)
    if (id >= m_writing.vocab_size)
      line.refuse(
          fmt::format("there is token {}, but the model has only {}; does the tokenizer belong to the model?",
                      id, m_writing.vocab_size));
}

ChatTemplate PromptEncoder::chat_template() const try {
  return m_writing.chat ? *m_writing.chat : chat_template_of(*m_tokenizer);
} catch (const NotSupported& error) {
  throw NotSupported(fmt::format("{}; a chat style says how messages are written", error.what()));
}

ChatEncoder& PromptEncoder::chat_encoder() {
  if (!m_chat) m_chat.emplace(*m_tokenizer, chat_template(), m_add_bos ? m_bos : std::nullopt);
  return *m_chat;
}

}  // namespace kformer::Impl::data
