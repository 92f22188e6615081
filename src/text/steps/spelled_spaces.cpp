// SPDX-License-Identifier: MIT
#include "text/steps/spelled_spaces.hpp"

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

}  // namespace kformer::Impl::tokenizers
