// SPDX-License-Identifier: MIT
#include "generate/expectation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kformer::drivers {

namespace {

constexpr std::string_view white_space = " \t\n\v\f\r";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(white_space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(white_space) - begin + 1);
}

// Where the UTF-8 character begins that the byte at `offset` belongs to.
std::size_t begin_of_character(std::string_view text, std::size_t offset) {
  while (offset > 0 && offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xc0u) == 0x80u)
    --offset;
  return offset;
}

// Bytes of the UTF-8 character at the beginning of a text, 0 if there is none.
std::size_t length_of_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length > text.size()) return 0;
  const bool continued = std::ranges::all_of(text.substr(1, std::max<std::size_t>(length, 1) - 1), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
  });
  return continued ? length : 0;
}

std::string shown(std::string_view character) {
  if (character.size() > 1) return std::string(character);
  const char c = character.front();
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\n') return "\\n";
  if (c == '"' || c == '\\') return {'\\', c};
  return byte < 0x20 || byte > 0x7e ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
}

// The text from `offset` on, shortened to a line, with control characters made visible.
std::string excerpt(std::string_view text, std::size_t offset = 0) {
  constexpr std::size_t longest = 40;
  text.remove_prefix(begin_of_character(text, offset));
  std::string quoted = "\"";
  std::size_t end = 0;
  while (end < text.size() && end < longest) {
    const std::size_t length = std::max<std::size_t>(length_of_character(text.substr(end)), 1);
    quoted += shown(text.substr(end, length));
    end += length;
  }
  return quoted + (end < text.size() ? "\"..." : "\"");
}

// The token that the byte at `offset` of the text belongs to.
std::size_t token_at(std::span<const TokenRecord> tokens, std::size_t offset) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    end += tokens[i].bytes.size();
    if (offset < end) return i;
  }
  return tokens.size();
}

}  // namespace

std::optional<std::string> difference_from(std::span<const TokenRecord> tokens, std::string_view expected) {
  std::string whole;
  for (const TokenRecord& token : tokens) whole += token.bytes;
  const std::string_view got = trimmed(whole), wanted = trimmed(expected);
  if (got == wanted) return {};
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(got, wanted).in1 - got.begin());
  if (same == got.size())
    return fmt::format("the text ends after token {} of {}, but {} should follow", tokens.size(), tokens.size(),
                       excerpt(wanted, same));
  const std::size_t leading = got.empty() ? 0 : static_cast<std::size_t>(got.data() - whole.data());
  const std::size_t token = token_at(tokens, leading + same);
  const std::string there = same == wanted.size() ? "the end" : excerpt(wanted, same);
  return fmt::format(
      "token {} of {} (id {}, {}) is the first that differs: after {} bytes of text, expected {}, got {}",
      token + 1, tokens.size(), tokens[token].id, excerpt(tokens[token].bytes), same, there,
      excerpt(got, same));
}

std::optional<std::string> difference_from(std::span<const TokenRecord> tokens,
                                           const std::vector<std::int64_t>& expected) {
  const auto same = static_cast<std::size_t>(
      std::ranges::mismatch(tokens, expected, {},
                            [](const TokenRecord& token) { return std::int64_t(token.id); })
          .in1 -
      tokens.begin());
  if (same == tokens.size() && same == expected.size()) return {};
  if (same == tokens.size())
    return fmt::format("the sequence ends after {} tokens, but id {} should follow, for {} tokens in total",
                       same, expected[same], expected.size());
  const std::string there = same == expected.size() ? "the end" : fmt::format("id {}", expected[same]);
  return fmt::format("token {} of {} (id {}, {}) is the first that differs: expected {}", same + 1,
                     tokens.size(), tokens[same].id, excerpt(tokens[same].bytes), there);
}

}  // namespace kformer::drivers
