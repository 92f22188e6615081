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

// Short enough for a line, with what would break it made visible.
std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string shown = "\"";
  for (const char c : text.substr(0, longest)) {
    if (c == '\n')
      shown += "\\n";
    else if (c == '"' || c == '\\')
      shown += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      shown += c;
  }
  return shown + (text.size() > longest ? "\"..." : "\"");
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
    return fmt::format("the text ends after token {} of {}, but it should go on with {}", tokens.size(),
                       tokens.size(), excerpt(wanted.substr(same)));
  const std::size_t leading = got.empty() ? 0 : static_cast<std::size_t>(got.data() - whole.data());
  const std::size_t token = token_at(tokens, leading + same);
  const std::string there = same == wanted.size() ? "the end" : excerpt(wanted.substr(same));
  return fmt::format(
      "token {} of {} (id {}, {}) is the first that differs: after {} bytes of text, {} should follow, not {}",
      token + 1, tokens.size(), tokens[token].id, excerpt(tokens[token].bytes), same, there,
      excerpt(got.substr(same)));
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
    return fmt::format("the sequence ends after {} tokens, but id {} should follow, and {} tokens in all", same,
                       expected[same], expected.size());
  const std::string there = same == expected.size() ? "the end" : fmt::format("id {}", expected[same]);
  return fmt::format("token {} of {} (id {}, {}) is the first that differs: {} should be there", same + 1,
                     tokens.size(), tokens[same].id, excerpt(tokens[same].bytes), there);
}

}  // namespace kformer::drivers
