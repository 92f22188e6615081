// SPDX-License-Identifier: MIT
#include "io/gguf/values.hpp"

#include <algorithm>
#include <array>

namespace kformer::Impl {
namespace {

constexpr std::array<std::size_t, 13> sizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// No published file nests arrays at all.
constexpr int max_array_depth = 8;

GgufType take_type(GgufCursor& cursor, const std::string& what) {
  const auto type = cursor.number<std::uint32_t>("the type of " + what);
  if (type >= sizes.size()) cursor.refuse(what + " has the unknown type " + std::to_string(type));
  return static_cast<GgufType>(type);
}

void take_elements(GgufCursor& cursor, GgufType type, std::uint64_t count, const std::string& what, int depth) {
  if (type == GgufType::boolean) {
    const auto bytes = cursor.take(count, 1, what);
    if (std::any_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte > std::byte{1}; }))
      cursor.refuse(what + " is a bool, but neither 0 nor 1");
  } else if (type == GgufType::string) {
    // Each takes the bytes of its length at least, so a claim beyond the file ends soon.
    for (std::uint64_t i = 0; i < count; ++i) cursor.string(what);
  } else if (type == GgufType::array) {
    if (depth == max_array_depth) cursor.refuse(what + " nests arrays too deeply");
    for (std::uint64_t i = 0; i < count; ++i) {
      const GgufType element = take_type(cursor, what);
      const auto elements = cursor.number<std::uint64_t>("the length of " + what);
      take_elements(cursor, element, elements, what, depth + 1);
    }
  } else {
    cursor.take(count, bytes_of(type), what);
  }
}

}  // namespace

GgufValue take_value(GgufCursor& cursor, const std::string& key) {
  const std::string what = "the value of '" + key + "'";
  const std::size_t all = cursor.remaining();
  GgufCursor start = cursor;
  GgufValue value;
  value.type = take_type(cursor, what);
  if (value.type == GgufType::array) {
    value.is_array = true;
    value.type = take_type(cursor, what);
    value.count = cursor.number<std::uint64_t>("the length of " + what);
  }
  const std::size_t begin = all - cursor.remaining();
  take_elements(cursor, value.type, value.count, what, 1);
  value.bytes = start.take(all - cursor.remaining(), 1, what).subspan(begin);
  return value;
}

std::size_t bytes_of(GgufType type) { return sizes[static_cast<std::size_t>(type)]; }

bool is_integer(GgufType type) { return is_number(type) && type != GgufType::f32 && type != GgufType::f64; }

bool is_number(GgufType type) { return bytes_of(type) > 0 && type != GgufType::boolean; }

}  // namespace kformer::Impl
