// SPDX-License-Identifier: MIT
#include "io/results/utf8.hpp"

#include <cstdint>

namespace kformer::Impl {
namespace {

/// Length of the well-formed character at the start of `bytes` (Unicode 15, table 3-7), or 0.
std::size_t character_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const std::uint8_t lead = at(0);
  if (lead != 0 && lead < 0x80) return 1;
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : (lead & 0xF0) == 0xE0        ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0 || bytes.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && at(1) < 0xA0) || (lead == 0xF0 && at(1) < 0x90);
  const bool surrogate = lead == 0xED && at(1) > 0x9F;
  const bool beyond_unicode = lead == 0xF4 && at(1) > 0x8F;
  return overlong || surrogate || beyond_unicode ? 0 : length;
}

}  // namespace

std::string to_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    text += length == 0 ? std::string_view("\xEF\xBF\xBD") : bytes.substr(0, length);
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text;
}

}  // namespace kformer::Impl
