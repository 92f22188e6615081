// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "kformer/core/error.hpp"

namespace kformer::Impl {

/// Reads a GGUF file sequentially, never beyond its end.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> file, const std::string& source) : m_file(file), m_source(source) {}

  std::size_t position() const { return m_position; }
  std::size_t remaining() const { return m_file.size() - m_position; }

  /// \throws FileError with the name of the file before `reason`
  [[noreturn]] void refuse(const std::string& reason) const {
    throw FileError("'" + m_source + "' is not a valid GGUF file: " + reason);
  }

  /// `count` items of `size` bytes each.
  /// \param what the file claims, for the error text
  std::span<const std::byte> take(std::uint64_t count, std::size_t size, const std::string& what) {
    if (count > remaining() / size) {
      const std::string times = count == 1 || size == 1 ? "" : " times " + std::to_string(size);
      refuse(what + " at byte " + std::to_string(m_position) + " takes " +
             std::to_string(count == 1 ? size : count) + times + " bytes, but only " +
             std::to_string(remaining()) + " follow; is the file truncated?");
    }
    const auto bytes = m_file.subspan(m_position, count * size);
    m_position += bytes.size();
    return bytes;
  }

  template <class Number>
  Number number(const std::string& what) {
    Number value;
    std::memcpy(&value, take(1, sizeof(Number), what).data(), sizeof(Number));
    return value;
  }

  std::string_view string(const std::string& what) {
    const auto length = number<std::uint64_t>("the length of " + what);
    const auto bytes = take(length, 1, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> m_file;
  const std::string& m_source;
  std::size_t m_position = 0;
};

}  // namespace kformer::Impl
