// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kformer::Impl::tokenizers {

/// Hashes std::string and std::string_view alike.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

/// The tokens of a vocabulary by id and by spelling.
class PieceTable {
 public:
  /// One more than the largest id that a vocabulary may have.
  static constexpr std::uint32_t most_ids = 1u << 22;
  /// Ids beyond twice the number of tokens: the table has a place for each id, and a small file must not make it large.
  static constexpr std::size_t most_gaps = 1u << 16;

  /// Says that so many tokens will be added.
  void expect(std::size_t tokens) { m_expected = m_ids.size() + tokens; }

  /// Adds a token. Ids may come in any order and may have gaps.
  /// \param file name of the file in error texts
  /// \throws FileError if the id is out of range for the number of tokens, or if the id or the spelling is already used
  void add(std::string_view piece, std::int64_t id, const std::string& file);

  std::int64_t size() const { return static_cast<std::int64_t>(m_pieces.size()); }

  bool has(std::int64_t id) const { return id >= 0 && id < size() && m_used[static_cast<std::size_t>(id)]; }

  /// Empty for ids without a token.
  const std::string& piece(std::int64_t id) const;

  std::optional<std::int32_t> find(std::string_view piece) const;

 private:
  std::vector<std::string> m_pieces;
  std::vector<bool> m_used;
  std::size_t m_expected = 0;  // tokens
  TextMap<std::int32_t> m_ids;
};

}  // namespace kformer::Impl::tokenizers
