// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace kformer::drivers {

/// Prints to a log. Standard error may be closed, or go to a full disk: no reason to lose a run. What standard output does not
/// take is an error at the end of the program.
template <class... Arguments>
void say(std::FILE* to, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  std::fwrite(text.data(), 1, text.size(), to);
}

}  // namespace kformer::drivers
