// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kformer::Impl {

/// Identifies contents, of files above all. It is not cryptographic: collisions can be constructed.
struct ContentHash {
  std::uint64_t low = 0, high = 0;

  bool operator==(const ContentHash&) const = default;
  std::string text() const;  ///< 32 hexadecimal digits
};

/// MurmurHash3_x64_128 (Appleby 2011, public domain); of its 32 seed bits 0.
ContentHash hash_of(std::span<const std::byte> bytes);
ContentHash hash_of(std::string_view text);

}  // namespace kformer::Impl
