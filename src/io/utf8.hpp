// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kformer::Impl {

/// U+FFFD, the replacement character, in UTF-8.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// The beginning of some bytes, read as UTF-8.
struct Utf8Character {
  enum class Kind {
    whole,       ///< a character
    malformed,   ///< no character begins like this; `bytes` is the longest beginning of one, at least 1
    unfinished,  ///< all bytes there are begin a character that needs more of them
  };
  Kind kind;
  std::size_t bytes;
};

/// The character at the start of `bytes`, which must not be empty (Unicode 15, table 3-7).
Utf8Character first_character(std::string_view bytes);

/// `bytes` with U+FFFD for each malformed or unfinished piece (Unicode 15, section 3.9).
std::string repair_utf8(std::string_view bytes);

/// `bytes` with everything that is not UTF-8, and NUL (which HDF5's strings cannot carry), replaced by U+FFFD:
/// one stray byte in a command line or a file name must not make the whole result file unreadable to Python.
std::string to_utf8(std::string_view bytes);

/// `contents` without the mark of byte order that a file in UTF-8 may begin with.
std::string_view without_byte_order_mark(std::string_view contents);

/// How many bytes at the end of `bytes` are an unfinished character.
std::size_t unfinished_bytes(std::string_view bytes);

}  // namespace kformer::Impl
