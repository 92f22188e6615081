// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "kformer/text/chat_template.hpp"

namespace kformer::Impl::tokenizers {

/// A token that is found in the text by its spelling, before splitting and merging.
struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool special = false;      ///< found only if the caller asks for special tokens
  bool takes_left = false;   ///< takes the white space before it
  bool takes_right = false;  ///< takes the white space after it
  bool single_word = false;  ///< only found where no letter or digit touches it
};

/// Bytes of the longest spelling; published ones have up to 80. A search may begin at every byte of a text, and
/// then reads as many.
inline constexpr std::size_t longest_added_token = 256;

/// A stretch of text, or the token that was found there.
using Segment = std::variant<std::string_view, std::int32_t>;

/// A part of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

/// A text with parts, in their order, that special tokens do not touch.
struct MarkedText {
  std::string text;
  std::vector<TextRange> plain;
};

/// The texts of pieces, with broken characters replaced, cut inside whatever spells one of the control pieces but is
/// none: no tokenizer can find it between two cuts, neither as an added token nor by merging.
/// \returns for each piece its parts; a cut is before each of them but the first, which is empty if the piece begins
///          with a cut
std::vector<std::vector<std::string>> cut_texts(std::span<const ChatPiece> pieces);

/// The text of a conversation between the cuts of `cut_texts`. Everything but control pieces is plain.
std::vector<MarkedText> marked_parts(std::span<const ChatPiece> pieces);

/// The tokens of a conversation: `encode(part)` of each part, joined.
template <class F>
std::vector<std::int32_t> encode_parts(std::span<const ChatPiece> pieces, F encode) {
  std::vector<std::int32_t> ids;
  for (const MarkedText& part : marked_parts(pieces)) {
    const auto more = encode(part);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

/// Finds added tokens: the leftmost, and of those that begin at the same place the longest.
class AddedTokens {
 public:
  /// \param file name of the file in error texts
  /// \throws FileError if its spelling is longer than `longest_added_token`
  void add(AddedToken token, const std::string& file);
  bool empty() const { return m_tokens.empty(); }

  /// Splits `text` at its tokens. Empty stretches are left out.
  std::vector<Segment> split(std::string_view text, bool with_special) const;
  /// The same with special tokens that do not touch the plain parts.
  std::vector<Segment> split(std::string_view text, std::span<const TextRange> plain) const;
  /// Whether one of them is special.
  bool has_special() const { return m_has_special; }

 private:
  const AddedToken* longest_at(std::string_view text) const;
  bool is_wanted(const AddedToken& token, std::string_view text, std::size_t at) const;

  std::vector<AddedToken> m_tokens;
  // A tree of the spellings: children by (node, byte), the token that ends at a node or −1.
  std::unordered_map<std::uint64_t, std::uint32_t> m_children;
  std::vector<std::int32_t> m_token_at{-1};
  std::array<bool, 256> m_begins{};
  bool m_has_special = false;
};

}  // namespace kformer::Impl::tokenizers
