// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace kformer::Impl {

/// A text without the white space (of ASCII) at its ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\n\r\f\v";
  const auto begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

}  // namespace kformer::Impl
