// SPDX-License-Identifier: MIT
#include "text/gguf/scored_merging.hpp"

#include <utility>

#include "io/utf8.hpp"
#include "text/base/byte_names.hpp"
#include "text/tokenizer/merging.hpp"

namespace kformer::Impl::tokenizers {

ScoredMerging::ScoredMerging(const PieceTable& pieces, std::vector<float> scores, std::vector<bool> merges,
                             std::optional<std::int32_t> unknown)
    : m_pieces(&pieces), m_scores(std::move(scores)), m_merges(std::move(merges)), m_unknown(unknown) {}

std::optional<std::int32_t> ScoredMerging::find(std::string_view text) const {
  const auto id = m_pieces->find(text);
  return id && m_merges[static_cast<std::size_t>(*id)] ? id : std::nullopt;
}

void ScoredMerging::add_bytes(std::string_view character, std::vector<std::int32_t>& ids) const {
  for (const char byte : character) {
    const auto id = m_pieces->find(name_of_byte(static_cast<unsigned char>(byte)));
    if (id) ids.push_back(*id);
    if (id) continue;
    if (m_unknown) ids.push_back(*m_unknown);
    return;
  }
}

void ScoredMerging::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  Symbols symbols;
  while (!text.empty()) {
    const std::size_t length = first_character(text).bytes;
    symbols.add(find(text.substr(0, length)).value_or(-1), text.substr(0, length));
    text.remove_prefix(length);
  }
  symbols.merge([&](const Symbol& left, const Symbol& right) -> std::optional<Joined> {
    const auto id = find({left.text.data(), left.text.size() + right.text.size()});
    if (!id) return {};
    return Joined{-static_cast<double>(m_scores[static_cast<std::size_t>(*id)]), *id};
  });
  symbols.for_each([&](const Symbol& symbol) {
    if (symbol.id >= 0)
      ids.push_back(symbol.id);
    else
      add_bytes(symbol.text, ids);
  });
}

}  // namespace kformer::Impl::tokenizers
