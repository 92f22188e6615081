// SPDX-License-Identifier: MIT
#include "decks/engine/limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "io/schema/read_file.hpp"

namespace kformer::Impl::schema {
namespace {

// The end of the string that starts at `begin`, one past its closing quotes; the end of the text if it is open.
std::size_t skip_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const std::string three(3, quote);
  const bool multi_line = text.substr(begin, 3) == three;
  for (std::size_t i = begin + (multi_line ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"')
      ++i;
    else if (multi_line && text.substr(i, 3) == three)
      return i + 3;
    else if (!multi_line && (text[i] == quote || text[i] == '\n'))
      return text[i] == quote ? i + 1 : i;
  }
  return text.size();
}

// The first byte outside of strings and comments that `wanted(i)` accepts, or npos.
template <class Wanted>
std::size_t find_bare(std::string_view text, Wanted wanted) {
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"' || text[i] == '\'')
      i = skip_string(text, i);
    else if (text[i] == '#')
      i = std::min(text.find('\n', i), text.size());
    else if (wanted(i))
      return i;
    else
      ++i;
  }
  return std::string_view::npos;
}

// The first byte of the first key with too many dots, or npos. A key ends where the structure says so; numbers
// have at most one dot and can be counted as if they were keys.
std::size_t find_deep_key(std::string_view text) {
  std::size_t begin = 0;
  int dots = 0;
  const std::size_t found = find_bare(text, [&](std::size_t i) {
    if (std::string_view("=,[]{}\n").find(text[i]) != std::string_view::npos) {
      begin = i + 1;
      dots = 0;
    }
    return text[i] == '.' && ++dots > max_key_dots;
  });
  return found == std::string_view::npos ? found : begin;
}

bool lines_within_limit(const std::shared_ptr<const SourceText>& source, Diagnostics& diagnostics) {
  const std::string_view text = source->text;
  bool within = true;
  int number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > max_line_bytes) {
      diagnostics.error(
          {source, number, 1, 0},
          fmt::format("the line has {} bytes, but the limit is {}; break the array over several lines",
                      end - begin, max_line_bytes));
      within = false;
    }
    begin = end + 1;
  }
  return within;
}

std::size_t find_beyond_ascii(std::string_view text) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  const std::size_t begin = text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
  return find_bare(text,
                   [&](std::size_t i) { return i >= begin && static_cast<unsigned char>(text[i]) >= 0x80; });
}

}  // namespace

bool bare_text_is_ascii(const std::shared_ptr<const SourceText>& source, std::string_view text,
                        Diagnostics& diagnostics) {
  const std::size_t byte = find_beyond_ascii(text);
  if (byte == std::string_view::npos) return true;
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    diagnostics.error({source}, "the deck is in UTF-16; save it in UTF-8");
    return false;
  }
  diagnostics.error(place_of_byte(source, byte), "a non-ASCII letter outside a string; put the text in quotes");
  return false;
}

bool within_limits(const std::shared_ptr<const SourceText>& source, Diagnostics& diagnostics) {
  if (source->text.size() > max_text_bytes) {
    diagnostics.error({source}, fmt::format("the deck is larger than {} bytes", max_text_bytes));
    return false;
  }
  if (!lines_within_limit(source, diagnostics)) return false;
  if (const std::size_t byte = find_deep_key(source->text); byte != std::string_view::npos) {
    diagnostics.error(place_of_byte(source, byte),
                      fmt::format("a key with more than {} dots; no table is that deep", max_key_dots));
    return false;
  }
  return true;
}

}  // namespace kformer::Impl::schema
