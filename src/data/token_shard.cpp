// SPDX-License-Identifier: MIT
#include "data/token_shard.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "kformer/core/error.hpp"

namespace kformer::Impl::data {
namespace {

/// Calls `f` with a function that returns token i as 64 bits.
template <class T, class F>
void read_as(const std::byte* tokens, F f) {
  f([tokens](std::int64_t i) {
    T token;
    std::memcpy(&token, tokens + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return static_cast<std::int64_t>(token);
  });
}

template <class F>
void read(const TokenShard& shard, F f) {
  switch (shard.type) {
    case TokenType::uint16:
      return read_as<std::uint16_t>(shard.tokens, f);
    case TokenType::uint32:
      return read_as<std::uint32_t>(shard.tokens, f);
    case TokenType::int32:
      return read_as<std::int32_t>(shard.tokens, f);
    case TokenType::int64:
      return read_as<std::int64_t>(shard.tokens, f);
  }
}

}  // namespace

std::size_t bytes_of(TokenType type) {
  return type == TokenType::uint16 ? 2 : type == TokenType::int64 ? 8 : 4;
}

void TokenShard::copy(std::int64_t first, std::span<std::int32_t> out) const {
  read(*this, [&](auto token) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::int32_t>(token(first + static_cast<std::int64_t>(i)));
  });
}

ContentHash content_of(const TokenShard& shard) {
  return hash_of(fmt::format("{} {} {}", bytes_of(shard.type), hash_of(shard.token_bytes()).text(),
                             hash_of(std::as_bytes(std::span(shard.offsets))).text()));
}

void check_ids(const TokenShard& shard, std::int64_t vocab_size) {
  const std::int64_t end =
      vocab_size > 0 ? vocab_size : std::int64_t(std::numeric_limits<std::int32_t>::max()) + 1;
  read(shard, [&](auto token) {
    for (std::int64_t i = 0; i < shard.size(); ++i)
      if (token(i) < 0 || token(i) >= end)
        throw FileError(fmt::format(
            "'{}': token {} is {}; expected 0 to {}{}", shard.source, i, token(i), end - 1,
            vocab_size > 0 ? " (the vocabulary); check that the data was made with this tokenizer" : ""));
  });
}

}  // namespace kformer::Impl::data
