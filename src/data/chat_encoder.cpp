// SPDX-License-Identifier: MIT
#include "data/chat_encoder.hpp"

#include <utility>

namespace kformer::Impl::data {
namespace {

/// A conversation on its way to tokens. Text is collected up to the next control token or the next change
/// between what is learnt and what is not, so that words are not split where pieces meet.
class Document {
 public:
  Document(const TextEncoder& encoder, TokenDocuments& documents)
      : m_encoder(encoder), m_documents(documents) {}

  void add_text(std::string_view text, bool learnt) {
    if (learnt != m_learnt) flush();
    m_learnt = learnt;
    m_waiting += text;
  }

  void add_control(std::int32_t id, bool learnt) {
    flush();
    m_documents.tokens.push_back(id);
    mark(learnt);
    m_after = TextEncoder::After::control;
  }

  void end() {
    flush();
    m_documents.end_document();
  }

 private:
  void flush() {
    if (m_waiting.empty()) return;
    m_encoder.append(m_waiting, m_after, m_documents.tokens);
    mark(m_learnt);
    m_waiting.clear();
    m_after = TextEncoder::After::text;
  }

  /// All tokens that have no mark yet.
  void mark(bool learnt) { m_documents.learnt.resize(m_documents.tokens.size(), learnt ? 1 : 0); }

  const TextEncoder& m_encoder;
  TokenDocuments& m_documents;
  std::string m_waiting;
  bool m_learnt = false;
  TextEncoder::After m_after = TextEncoder::After::nothing;
};

}  // namespace

std::optional<std::int32_t> ChatEncoder::control(const std::string& spelling) {
  const auto [entry, is_new] = m_controls.try_emplace(spelling);
  if (is_new) entry->second = m_text.control(spelling);
  return entry->second;
}

void ChatEncoder::append(std::span<const ChatMessage> messages, TokenDocuments& documents) {
  const auto pieces = chat_pieces(m_chat, messages);
  Document document(m_text, documents);
  const bool begins_itself = pieces[0].control && m_bos && control(pieces[0].text) == m_bos;
  if (m_bos && !begins_itself) document.add_control(*m_bos, false);
  for (const ChatPiece& piece : pieces) {
    const auto id = piece.control ? control(piece.text) : std::nullopt;
    if (id)
      document.add_control(*id, piece.answer);
    else
      document.add_text(piece.text, piece.answer);
  }
  document.end();
}

}  // namespace kformer::Impl::data
