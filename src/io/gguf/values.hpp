// SPDX-License-Identifier: MIT
#pragma once

#include "io/gguf/cursor.hpp"
#include "kformer/io/gguf.hpp"

namespace kformer::Impl {

/// Reads the type and value of metadata `key` and checks them completely.
GgufValue take_value(GgufCursor& cursor, const std::string& key);

/// Bytes of a number or bool; 0 for strings and arrays.
std::size_t bytes_of(GgufType type);

bool is_integer(GgufType type);
bool is_number(GgufType type);

}  // namespace kformer::Impl
