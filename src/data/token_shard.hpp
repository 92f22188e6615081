// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/content_hash.hpp"

namespace kformer::Impl::data {

/// Documents as they are made.
struct TokenDocuments {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> offsets{0};  ///< documents + 1: where each begins, and the end
  std::vector<std::uint8_t> learnt;      ///< for each token whether it is a target; empty: all are
  std::int64_t malformed = 0;            ///< places of the text that are not UTF-8

  void end_document() { offsets.push_back(static_cast<std::int64_t>(tokens.size())); }
};

/// How a file stores tokens.
enum class TokenType { uint16, uint32, int32, int64 };

std::size_t bytes_of(TokenType type);

/// The documents of one file, in memory or mapped.
struct TokenShard {
  std::string source;                    ///< the file, for error texts
  std::shared_ptr<const void> memory;    ///< what `tokens` and `learnt` point into
  const std::byte* tokens = nullptr;     ///< of any alignment
  TokenType type = TokenType::int32;     ///< of `tokens`
  std::vector<std::int64_t> offsets{0};  ///< documents + 1
  std::span<const std::uint8_t> learnt;  ///< one per token, or empty: all are targets
  std::int64_t malformed = 0;            ///< places of the text that are not UTF-8
  ContentHash content;                   ///< of everything above but `source` and `memory`

  std::int64_t size() const { return offsets.back(); }
  std::span<const std::byte> token_bytes() const {
    return {tokens, static_cast<std::size_t>(size()) * bytes_of(type)};
  }
  /// Copies tokens `first` to `first + out.size() - 1`.
  void copy(std::int64_t first, std::span<std::int32_t> out) const;
};

/// The hash of tokens and documents where nothing else is stored.
ContentHash content_of(const TokenShard& shard);

/// \throws FileError naming the first token that is not in 0 … vocab_size − 1 (0: any that fits into 32 bits)
void check_ids(const TokenShard& shard, std::int64_t vocab_size);

}  // namespace kformer::Impl::data
