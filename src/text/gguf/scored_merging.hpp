// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/steps/piece_table.hpp"

namespace kformer::Impl::tokenizers {

/// Byte-pair encoding as SentencePiece does it (Kudo & Richardson, arXiv:1808.06226): of all neighbours that
/// make a token, those with the best score are joined first.
class ScoredMerging {
 public:
  /// \param pieces  must outlive this
  /// \param scores  by id
  /// \param merges  by id: whether neighbours may become this token
  /// \param unknown the token for characters that are none and have no tokens for their bytes
  ScoredMerging(const PieceTable& pieces, std::vector<float> scores, std::vector<bool> merges,
                std::optional<std::int32_t> unknown);

  /// Appends the tokens of `text` to `ids`.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  std::optional<std::int32_t> find(std::string_view text) const;
  void add_bytes(std::string_view character, std::vector<std::int32_t>& ids) const;

  const PieceTable* m_pieces;
  std::vector<float> m_scores;
  std::vector<bool> m_merges;
  std::optional<std::int32_t> m_unknown;
};

}  // namespace kformer::Impl::tokenizers
