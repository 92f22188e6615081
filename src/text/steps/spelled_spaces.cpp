// SPDX-License-Identifier: MIT
#include "text/steps/spelled_spaces.hpp"

#include "text/base/byte_names.hpp"

namespace kformer::Impl::tokenizers {

std::string bytes_of_spelling(std::string_view piece, bool drop_space) {
  if (const auto byte = named_byte(piece)) return {static_cast<char>(*byte)};
  if (drop_space && piece.starts_with(spelled_space)) piece.remove_prefix(spelled_space.size());
  std::string bytes;
  while (!piece.empty()) {
    const bool space = piece.starts_with(spelled_space);
    bytes += space ? ' ' : piece[0];
    piece.remove_prefix(space ? spelled_space.size() : 1);
  }
  return bytes;
}

}  // namespace kformer::Impl::tokenizers
