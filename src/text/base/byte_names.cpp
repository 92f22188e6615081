// SPDX-License-Identifier: MIT
#include "text/base/byte_names.hpp"

#include <array>
#include <cstdint>

namespace kformer::Impl::tokenizers {
namespace {

constexpr int byte_values = 256, letters = 512;

/// Letters are below U+0200: two bytes of UTF-8 at most.
struct ByteLetters {
  std::array<std::string, byte_values> letter;
  std::array<int, letters> byte;  ///< by code point, −1: none

  ByteLetters() {
    byte.fill(-1);
    int next = 0x100;
    for (int value = 0; value < byte_values; ++value) {
      const bool prints = (value >= 0x21 && value <= 0x7E) || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
      const int code = prints ? value : next++;
      byte[code] = value;
      if (code < 0x80)
        letter[value] = {static_cast<char>(code)};
      else
        letter[value] = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
  }
};

const ByteLetters& byte_letters() {
  static const ByteLetters table;
  return table;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string name_of_byte(unsigned char byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
}

std::optional<unsigned char> named_byte(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return {};
  const int high = hex_digit(name[3]), low = hex_digit(name[4]);
  if (high < 0 || low < 0) return {};
  return static_cast<unsigned char>(high << 4 | low);
}

std::string_view letter_of_byte(unsigned char byte) { return byte_letters().letter[byte]; }

std::string letters_of_bytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) text += letter_of_byte(static_cast<unsigned char>(c));
  return text;
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    int code = static_cast<unsigned char>(letters[i]);
    if (code >= 0x80) {
      // Only letters of two bytes occur, with leads C2 to C7.
      if (code < 0xC2 || code > 0xC7 || i + 1 == letters.size()) return {};
      code = (code & 0x1F) << 6 | (static_cast<unsigned char>(letters[++i]) & 0x3F);
    }
    const int byte = byte_letters().byte[code];
    if (byte < 0) return {};
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace kformer::Impl::tokenizers
