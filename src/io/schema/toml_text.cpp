// SPDX-License-Identifier: MIT
#include "io/schema/toml_text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace kformer::Impl::schema {

std::string toml_text(bool value) { return value ? "true" : "false"; }

std::string toml_text(std::int64_t value) { return std::to_string(value); }

std::string toml_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  // Without a point or an exponent TOML would read an integer.
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string toml_text(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      text += {'\\', c};
    else if (c == '\n')
      text += "\\n";
    else if (c == '\t')
      text += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      text += fmt::format("\\u{:04X}", byte);
    else
      text += c;
  }
  return text + "\"";
}

}  // namespace kformer::Impl::schema
