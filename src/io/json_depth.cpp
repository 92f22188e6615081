// SPDX-License-Identifier: MIT
#include "io/json_depth.hpp"

#include <cstddef>

namespace kformer::Impl {

bool is_shallow_json(std::string_view text, int deepest) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > deepest) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

}  // namespace kformer::Impl
