// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "data/text_encoder.hpp"
#include "data/token_shard.hpp"
#include "kformer/text/chat_template.hpp"

namespace kformer::Impl::data {

/// Converts conversations to tokens, as `Tokenizer::encode_with_special` does with their text, with two
/// differences: control tokens that messages spell out remain text, as in `encode_chat`, and a token begins where
/// an answer begins, as it does when a model writes the answer.
class ChatEncoder {
 public:
  /// \param bos precedes every conversation that does not begin with it itself; empty: none
  ChatEncoder(const Tokenizer& tokenizer, ChatTemplate chat, std::optional<std::int32_t> bos)
      : m_text(tokenizer), m_chat(std::move(chat)), m_bos(bos) {}

  /// Appends a conversation as one document; learnt are answers and the tokens that end them.
  /// \throws NotSupported as chat_pieces
  void append(std::span<const ChatMessage> messages, TokenDocuments& documents);

  /// The same with pieces of the template, of which the first `known` answers are not learnt.
  void append_pieces(std::span<const ChatPiece> pieces, TokenDocuments& documents, std::int64_t known = 0);

  const ChatTemplate& chat() const { return m_chat; }

 private:
  std::optional<std::int32_t> control(const std::string& spelling);

  TextEncoder m_text;
  ChatTemplate m_chat;
  std::optional<std::int32_t> m_bos;
  std::map<std::string, std::optional<std::int32_t>> m_controls;
};

}  // namespace kformer::Impl::data
