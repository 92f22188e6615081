// SPDX-License-Identifier: MIT
#pragma once

#include "io/gguf/cursor.hpp"
#include "kformer/io/gguf.hpp"

namespace kformer::Impl {

/// Takes the value of metadata `key`, its type first, and checks it to its last byte.
GgufValue take_value(GgufCursor& cursor, const std::string& key);

/// Bytes of a number or bool; 0 for strings and arrays.
std::size_t bytes_of(GgufType type);

bool is_integer(GgufType type);
bool is_number(GgufType type);

}  // namespace kformer::Impl
