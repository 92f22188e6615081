// SPDX-License-Identifier: MIT
#include "io/results/utf8.hpp"

#include "io/utf8.hpp"

namespace kformer::Impl {

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
