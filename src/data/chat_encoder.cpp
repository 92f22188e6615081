// SPDX-License-Identifier: MIT
#include "data/chat_encoder.hpp"

#include <utility>

#include "text/steps/added_tokens.hpp"

namespace kformer::Impl::data {
namespace {

/// A conversation on its way to tokens. Text is collected up to the next control token or the next change
/// between answers and what is none, so that words are not split where other pieces meet.
class Document {
 public:
  Document(const TextEncoder& encoder, TokenDocuments& documents)
      : m_encoder(encoder), m_documents(documents) {}

  void add_text(std::string_view text, bool answer, bool learnt) {
    if (answer != m_answer) flush();
    m_answer = answer;
    m_learnt = learnt;
    m_waiting += text;
  }

  /// No token may reach from before to behind this place.
  void cut() { flush(); }

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
  bool m_answer = false, m_learnt = false;
  TextEncoder::After m_after = TextEncoder::After::nothing;
};

}  // namespace

std::optional<std::int32_t> ChatEncoder::control(const std::string& spelling) {
  const auto [entry, is_new] = m_controls.try_emplace(spelling);
  if (is_new) entry->second = m_text.control(spelling);
  return entry->second;
}

void ChatEncoder::append(std::span<const ChatMessage> messages, TokenDocuments& documents) {
  append_pieces(chat_pieces(m_chat, messages), documents);
}

void ChatEncoder::append_pieces(std::span<const ChatPiece> pieces, TokenDocuments& documents,
                                std::int64_t known) {
  Document document(m_text, documents);
  const bool begins_itself = !pieces.empty() && pieces[0].control && m_bos && control(pieces[0].text) == m_bos;
  if (m_bos && !begins_itself) document.add_control(*m_bos, false);
  const auto texts = tokenizers::cut_texts(pieces);
  std::int64_t answers = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const ChatPiece& piece = pieces[i];
    answers += piece.answer ? 1 : 0;
    const bool learnt = piece.answer && answers > known;
    if (const auto id = piece.control ? control(piece.text) : std::nullopt) {
      document.add_control(*id, learnt);
      continue;
    }
    for (std::size_t k = 0; k < texts[i].size(); ++k) {
      if (k > 0) document.cut();
      document.add_text(texts[i][k], piece.answer, learnt);
    }
  }
  document.end();
}

}  // namespace kformer::Impl::data
