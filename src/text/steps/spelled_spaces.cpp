// SPDX-License-Identifier: MIT
#include "text/steps/spelled_spaces.hpp"

#include "text/base/byte_names.hpp"

namespace kformer::Impl::tokenizers {

std::string with_spaces(std::string_view spelling, std::string_view space) {
  std::string text;
  while (!spelling.empty()) {
    const bool spells_space = spelling.starts_with(spelled_space);
    text += spells_space ? space : spelling.substr(0, 1);
    spelling.remove_prefix(spells_space ? spelled_space.size() : 1);
  }
  return text;
}

std::string bytes_of_spelling(std::string_view piece, bool drop_space) {
  if (const auto byte = named_byte(piece)) return {static_cast<char>(*byte)};
  if (drop_space && piece.starts_with(spelled_space)) piece.remove_prefix(spelled_space.size());
  return with_spaces(piece, " ");
}

}  // namespace kformer::Impl::tokenizers
