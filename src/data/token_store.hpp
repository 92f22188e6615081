// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/token_shard.hpp"

namespace kformer::Impl::data {

/// `CrossEntropyOptions::ignore_index`
inline constexpr std::int32_t no_target = -100;

/// The tokens of all documents, one after another.
class TokenStore {
 public:
  void add(TokenShard shard);
  /// All tokens are learnt from now on.
  void learn_all();

  std::int64_t size() const { return m_offsets.back(); }
  /// Documents + 1: where each begins, and the end.
  std::span<const std::int64_t> offsets() const { return m_offsets; }

  /// Tokens from `first` on.
  void ids(std::int64_t first, std::span<std::int32_t> out) const;
  /// The same as targets: `no_target` for those that are not learnt.
  void targets(std::int64_t first, std::span<std::int32_t> out) const;
  /// How many of the tokens first … last − 1 are learnt.
  std::int64_t learnt(std::int64_t first, std::int64_t last) const;

  std::int64_t malformed() const;
  /// Of everything.
  ContentHash content() const;

 private:
  /// Calls `f(shard, first token in it, count)` for the parts of a range.
  template <class F>
  void for_parts(std::int64_t first, std::int64_t count, F f) const;

  std::vector<TokenShard> m_shards;
  std::vector<std::int64_t> m_begins;  ///< the first token of each shard
  std::vector<std::int64_t> m_offsets{0};
};

}  // namespace kformer::Impl::data
