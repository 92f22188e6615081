// SPDX-License-Identifier: MIT
#include "text/tokenizer/bpe.hpp"

#include <array>

#include "io/utf8.hpp"
#include "text/base/byte_names.hpp"
#include "text/base/file.hpp"

namespace kformer::Impl::tokenizers {
namespace {

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const PieceTable& pieces, Options options)
    : m_pieces(&pieces), m_own(static_cast<std::size_t>(pieces.size())), m_options(options) {
  for (std::size_t id = 0; id < m_own.size(); ++id) m_own[id] = pieces.has(static_cast<std::int64_t>(id));
}

std::optional<std::int32_t> Bpe::find(std::string_view piece) const {
  const auto id = m_pieces->find(piece);
  const bool own = id && static_cast<std::size_t>(*id) < m_own.size() && m_own[static_cast<std::size_t>(*id)];
  return own ? id : std::nullopt;
}

void Bpe::add_merge(std::string_view left, std::string_view right, EqualMerges equal, const std::string& file) {
  const std::string both = std::string(left) + std::string(right);
  const auto id = [&](std::string_view piece) {
    if (const auto found = find(piece)) return *found;
    refuse(file, "merge " + std::to_string(m_rank) + " of " + in_quotes(left) + " and " + in_quotes(right) +
                     ": " + in_quotes(piece) + " is not a token");
  };
  const std::uint64_t key = key_of(id(left), id(right));
  const Joined joined{static_cast<double>(m_rank), id(both)};
  ++m_rank;
  if (equal == EqualMerges::first_counts)
    m_merges.emplace(key, joined);
  else
    m_merges[key] = joined;
}

void Bpe::add_character(std::string_view character, Symbols& symbols) const {
  if (const auto id = find(character)) {
    symbols.add(*id, character);
    return;
  }
  if (m_options.byte_fallback) {
    std::array<std::int32_t, 4> bytes{};
    std::size_t found = 0;
    for (const char c : character) {
      const auto id = find(name_of_byte(static_cast<unsigned char>(c)));
      if (!id) break;
      bytes[found++] = *id;
    }
    if (found == character.size()) {
      for (std::size_t i = 0; i < found; ++i) symbols.add(bytes[i], character.substr(i, 1));
      return;
    }
  }
  if (!m_options.unknown) return;
  if (m_options.fuse_unknown && !symbols.empty()) {
    Symbol& last = symbols.last();
    // A token that is spelled like the unknown one begins with a character that is known.
    const bool unknown =
        last.id == *m_options.unknown && !find(last.text.substr(0, first_character(last.text).bytes));
    if (unknown && last.text.data() + last.text.size() == character.data()) {
      last.text = {last.text.data(), last.text.size() + character.size()};
      return;
    }
  }
  symbols.add(*m_options.unknown, character);
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (m_options.whole_words) {
    if (const auto id = find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  Symbols symbols;
  while (!word.empty()) {
    const std::size_t length = first_character(word).bytes;
    add_character(word.substr(0, length), symbols);
    word.remove_prefix(length);
  }
  symbols.merge([&](const Symbol& left, const Symbol& right) -> std::optional<Joined> {
    const auto place = m_merges.find(key_of(left.id, right.id));
    if (place == m_merges.end()) return {};
    return place->second;
  });
  symbols.for_each([&](const Symbol& symbol) { ids.push_back(symbol.id); });
}

}  // namespace kformer::Impl::tokenizers
