// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

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

/// A stretch of text, or the token that was found there.
using Segment = std::variant<std::string_view, std::int32_t>;

/// Finds added tokens: the leftmost, and of those that begin at the same place the longest.
class AddedTokens {
 public:
  void add(AddedToken token);
  bool empty() const { return m_tokens.empty(); }

  /// Splits `text` at its tokens. Empty stretches are left out.
  std::vector<Segment> split(std::string_view text, bool with_special) const;

 private:
  struct Found {
    std::size_t begin, end;
    const AddedToken* token;
  };
  const AddedToken* longest_at(std::string_view text) const;
  bool is_wanted(const AddedToken& token, std::string_view text, std::size_t at, bool with_special) const;

  std::vector<AddedToken> m_tokens;
  // A tree of the spellings: children by (node, byte), the token that ends at a node or −1.
  std::unordered_map<std::uint64_t, std::uint32_t> m_children;
  std::vector<std::int32_t> m_token_at{-1};
  std::array<bool, 256> m_begins{};
};

}  // namespace kformer::Impl::tokenizers
