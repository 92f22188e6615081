// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/steps/piece_table.hpp"
#include "text/tokenizer/merging.hpp"

namespace kformer::Impl::tokenizers {

/// Which of two equal pairs in a list of merges takes effect.
enum class EqualMerges { last_counts, first_counts };

/// Byte-pair encoding by a list of merges.
class Bpe {
 public:
  /// How characters without a token are encoded, and which words are tokens before any merge.
  struct Options {
    std::optional<std::int32_t> unknown;  ///< the token for it; without: nothing
    bool fuse_unknown = false;            ///< neighbours that are unknown become one token
    bool byte_fallback = false;           ///< the tokens `<0x..>` of its bytes, where all are there
    bool whole_words = false;             ///< a word that is a token is not merged ("ignore_merges")
  };

  /// \param pieces must outlive this; words consist of the tokens that it has now, not of those that are added later
  Bpe(const PieceTable& pieces, Options options);

  /// Appends to the list of merges.
  /// \throws FileError if left, right or their merge is not a token
  void add_merge(std::string_view left, std::string_view right, EqualMerges equal, const std::string& file);

  /// Appends the tokens of `word` to `ids`.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  std::optional<std::int32_t> find(std::string_view piece) const;
  void add_character(std::string_view character, Symbols& symbols) const;

  const PieceTable* m_pieces;
  std::vector<bool> m_own;  // by id: whether words may have it
  Options m_options;
  std::unordered_map<std::uint64_t, Joined> m_merges;  // by both ids
  std::int64_t m_rank = 0;
};

}  // namespace kformer::Impl::tokenizers
