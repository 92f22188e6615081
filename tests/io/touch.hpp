// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

namespace kformer::Testing {

/// Reads every byte, so that a sanitizer sees those outside of a file. Returns how many there are.
inline std::size_t touch(std::span<const std::byte> bytes) {
  volatile std::byte last{};
  for (const std::byte byte : bytes) last = byte;
  return bytes.size();
}

}  // namespace kformer::Testing
