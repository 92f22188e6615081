// SPDX-License-Identifier: MIT
#include "text/steps/added_tokens.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "io/utf8.hpp"
#include "text/base/file.hpp"
#include "text/steps/pattern.hpp"

namespace kformer::Impl::tokenizers {
namespace {

std::uint64_t child_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

bool is_whole_match(const Pattern& pattern, std::string_view character) {
  return !character.empty() && pattern.find_all(character).front().match;
}

bool is_space(std::string_view character) {
  static const Pattern space(R"(\s)", "white space");
  return is_whole_match(space, character);
}

bool is_word(std::string_view character) {
  // `\w` of UTS #18, as the library of these files has it.
  static const Pattern word(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])", "letters");
  return is_whole_match(word, character);
}

std::string_view first_of(std::string_view text) {
  return text.empty() ? text : text.substr(0, first_character(text).bytes);
}

std::string_view last_of(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0) != 0x80) break;
  }
  return text.substr(begin);
}

/// Where anything but a control piece alone spells one of `controls`.
std::set<std::size_t> cuts_of(const MarkedText& all, const std::set<std::string>& controls) {
  std::set<std::size_t> cuts;
  for (const std::string& control : controls) {
    auto plain = all.plain.begin();
    for (std::size_t at = all.text.find(control); at != all.text.npos; at = all.text.find(control, at + 1)) {
      plain = std::find_if(plain, all.plain.end(), [&](const TextRange& range) { return range.end > at; });
      if (plain == all.plain.end()) break;
      if (plain->begin < at + control.size())
        cuts.insert(std::max(plain->begin, at + first_character(control).bytes));
    }
  }
  return cuts;
}

}  // namespace

std::vector<std::vector<std::string>> cut_texts(std::span<const ChatPiece> pieces) {
  MarkedText all;
  std::set<std::string> controls;
  std::vector<std::size_t> ends;
  for (const ChatPiece& piece : pieces) {
    const std::size_t begin = all.text.size();
    all.text += repair_utf8(piece.text);
    if (piece.control)
      controls.insert(all.text.substr(begin));
    else
      all.plain.push_back({begin, all.text.size()});
    ends.push_back(all.text.size());
  }
  controls.erase("");
  const std::set<std::size_t> cuts = cuts_of(all, controls);

  std::vector<std::vector<std::string>> texts;
  auto cut = cuts.begin();
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    std::vector<std::string>& parts = texts.emplace_back();
    for (; cut != cuts.end() && *cut < end; begin = *cut++)
      parts.push_back(all.text.substr(begin, *cut - begin));
    parts.push_back(all.text.substr(begin, end - begin));
    begin = end;
  }
  return texts;
}

std::vector<MarkedText> marked_parts(std::span<const ChatPiece> pieces) {
  std::vector<MarkedText> parts(1);
  const auto texts = cut_texts(pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (std::size_t k = 0; k < texts[i].size(); ++k) {
      if (k > 0) parts.emplace_back();
      MarkedText& part = parts.back();
      const std::size_t begin = part.text.size();
      part.text += texts[i][k];
      if (!pieces[i].control) part.plain.push_back({begin, part.text.size()});
    }
  }
  return parts;
}

void AddedTokens::add(AddedToken token, const std::string& file) {
  if (token.text.empty()) return;
  if (token.text.size() > longest_added_token)
    refuse(file, "the added token " + in_quotes(token.text) + " has " + std::to_string(token.text.size()) +
                     " bytes, at most " + std::to_string(longest_added_token) + " are supported");
  std::uint32_t node = 0;
  for (const char byte : token.text) {
    const auto next = static_cast<std::uint32_t>(m_token_at.size());
    const auto [place, fresh] = m_children.try_emplace(child_key(node, byte), next);
    if (fresh) m_token_at.push_back(-1);
    node = place->second;
  }
  m_begins[static_cast<unsigned char>(token.text[0])] = true;
  m_token_at[node] = static_cast<std::int32_t>(m_tokens.size());
  m_has_special |= token.special;
  m_tokens.push_back(std::move(token));
}

const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const AddedToken* longest = nullptr;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto child = m_children.find(child_key(node, byte));
    if (child == m_children.end()) break;
    node = child->second;
    if (m_token_at[node] >= 0) longest = &m_tokens[static_cast<std::size_t>(m_token_at[node])];
  }
  return longest;
}

bool AddedTokens::is_wanted(const AddedToken& token, std::string_view text, std::size_t at) const {
  if (!token.single_word) return true;
  return !is_word(last_of(text.substr(0, at))) && !is_word(first_of(text.substr(at + token.text.size())));
}

std::vector<Segment> AddedTokens::split(std::string_view text, bool with_special) const {
  const TextRange all{0, text.size()};
  return split(text, std::span(&all, with_special ? 0 : 1));
}

std::vector<Segment> AddedTokens::split(std::string_view text, std::span<const TextRange> plain) const {
  std::vector<Segment> segments;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token =
        m_begins[static_cast<unsigned char>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->text.size();
    while (!plain.empty() && plain.front().end <= begin) plain = plain.subspan(1);
    if (token->special && !plain.empty() && plain.front().begin < end) {
      // A token of the template may begin where the plain part ends.
      at = std::min(end, std::max(begin + 1, plain.front().end));
      continue;
    }
    at = end;
    if (!is_wanted(*token, text, begin)) continue;
    if (token->takes_left)
      while (begin > done && is_space(last_of(text.substr(done, begin - done))))
        begin -= last_of(text.substr(done, begin - done)).size();
    if (token->takes_right)
      while (end < text.size() && is_space(first_of(text.substr(end))))
        end += first_of(text.substr(end)).size();
    begin = std::max(begin, done);
    if (begin > done) segments.emplace_back(text.substr(done, begin - done));
    segments.emplace_back(token->id);
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) segments.emplace_back(text.substr(done));
  return segments;
}

}  // namespace kformer::Impl::tokenizers
