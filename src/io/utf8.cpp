// SPDX-License-Identifier: MIT
#include "io/utf8.hpp"

#include <algorithm>
#include <cstdint>

namespace kformer::Impl {
namespace {

/// What may follow a lead byte.
struct Sequence {
  std::size_t length;           ///< bytes of the character, 0: no lead byte
  std::uint8_t lowest = 0x80;   ///< of the second byte
  std::uint8_t highest = 0xBF;  ///< of the second byte
};

Sequence sequence_of(std::uint8_t lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};  // continuations, and leads of overlong forms
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0};        // else overlong
  if (lead == 0xED) return {3, 0x80, 0x9F};  // else a surrogate
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90};        // else overlong
  if (lead == 0xF4) return {4, 0x80, 0x8F};  // else beyond Unicode
  return {lead < 0xF4 ? 4u : 0u};
}

}  // namespace

Utf8Character first_character(std::string_view bytes) {
  using Kind = Utf8Character::Kind;
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const Sequence sequence = sequence_of(at(0));
  if (sequence.length == 0) return {Kind::malformed, 1};
  for (std::size_t i = 1; i < sequence.length; ++i) {
    if (i == bytes.size()) return {Kind::unfinished, i};
    const std::uint8_t lowest = i == 1 ? sequence.lowest : 0x80, highest = i == 1 ? sequence.highest : 0xBF;
    if (at(i) < lowest || at(i) > highest) return {Kind::malformed, i};
  }
  return {Kind::whole, sequence.length};
}

std::string repair_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Character character = first_character(bytes);
    const bool whole = character.kind == Utf8Character::Kind::whole;
    text += whole ? bytes.substr(0, character.bytes) : replacement_character;
    bytes.remove_prefix(character.bytes);
  }
  return text;
}

std::string_view without_byte_order_mark(std::string_view contents) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  return contents.starts_with(mark) ? contents.substr(mark.size()) : contents;
}

std::size_t unfinished_bytes(std::string_view bytes) {
  constexpr std::size_t longest = 4;
  for (std::size_t count = 1; count < longest && count <= bytes.size(); ++count) {
    const std::string_view end = bytes.substr(bytes.size() - count);
    const bool continuation = (static_cast<std::uint8_t>(end[0]) & 0xC0) == 0x80;
    if (continuation) continue;
    return first_character(end).kind == Utf8Character::Kind::unfinished ? count : 0;
  }
  return 0;
}

std::string to_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Character character = first_character(bytes);
    const bool keep = character.kind == Utf8Character::Kind::whole && bytes[0] != '\0';
    text += keep ? bytes.substr(0, character.bytes) : replacement_character;
    bytes.remove_prefix(keep ? character.bytes : 1);
  }
  return text;
}

}  // namespace kformer::Impl
