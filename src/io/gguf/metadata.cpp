// SPDX-License-Identifier: MIT
#include <cstring>
#include <type_traits>
#include <utility>

#include "io/gguf/values.hpp"
#include "io/key_names.hpp"
#include "kformer/io/gguf.hpp"

namespace kformer {
namespace {

template <class Number>
Number load(const std::byte* place) {
  Number value;
  std::memcpy(&value, place, sizeof(Number));
  return value;
}

/// Calls `f` with the number at `place`.
template <class F>
auto with_number(GgufType type, const std::byte* place, F&& f) {
  switch (type) {
    case GgufType::u8:
      return f(load<std::uint8_t>(place));
    case GgufType::i8:
      return f(load<std::int8_t>(place));
    case GgufType::u16:
      return f(load<std::uint16_t>(place));
    case GgufType::i16:
      return f(load<std::int16_t>(place));
    case GgufType::u32:
      return f(load<std::uint32_t>(place));
    case GgufType::i32:
      return f(load<std::int32_t>(place));
    case GgufType::u64:
      return f(load<std::uint64_t>(place));
    case GgufType::f32:
      return f(load<float>(place));
    case GgufType::f64:
      return f(load<double>(place));
    default:
      return f(load<std::int64_t>(place));
  }
}

[[noreturn]] void refuse(const std::string& source, std::string_view key, const std::string& reason) {
  throw FileError("'" + source + "': metadata '" + std::string(key) + "' " + reason);
}

/// Element `index` of an array of numbers, or the number itself.
template <class To>
To number_at(const GgufValue& value, std::size_t index, const std::string& source, std::string_view key) {
  return with_number(value.type, value.bytes.data() + index * Impl::bytes_of(value.type), [&](auto number) {
    if constexpr (std::is_integral_v<To>)
      if constexpr (std::is_integral_v<decltype(number)>)
        if (!std::in_range<To>(number))
          refuse(source, key,
                 "is " + std::to_string(number) + ", which does not fit into a signed 64-bit integer");
    return static_cast<To>(number);
  });
}

template <class To>
std::vector<To> numbers_of(const GgufValue& value, const std::string& source, std::string_view key) {
  std::vector<To> numbers;
  numbers.reserve(value.count);
  for (std::size_t i = 0; i < value.count; ++i) numbers.push_back(number_at<To>(value, i, source, key));
  return numbers;
}

bool is_string(GgufType type) { return type == GgufType::string; }
bool is_boolean(GgufType type) { return type == GgufType::boolean; }

}  // namespace

std::vector<std::string> GgufFile::names() const { return Impl::key_names(m_tensors); }

const CheckpointTensor* GgufFile::find(std::string_view name) const {
  const auto place = m_tensors.find(name);
  return place == m_tensors.end() ? nullptr : &place->second;
}

std::vector<std::string> GgufFile::keys() const { return Impl::key_names(m_metadata); }

bool GgufFile::has_array(std::string_view key) const {
  const auto place = m_metadata.find(key);
  return place != m_metadata.end() && place->second.is_array;
}

const GgufValue* GgufFile::find_value(std::string_view key, bool is_array, bool (*fits)(GgufType),
                                      const char* expected) const {
  const auto place = m_metadata.find(key);
  if (place == m_metadata.end()) return nullptr;
  const GgufValue& value = place->second;
  if (value.is_array != is_array || !fits(value.type))
    refuse(m_source, key, std::string("has another type, expected ") + expected);
  return &value;
}

std::optional<std::string> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find_value(key, false, is_string, "a string");
  if (value == nullptr) return std::nullopt;
  return std::string(Impl::GgufCursor(value->bytes, m_source).string("a string"));
}

std::optional<std::int64_t> GgufFile::find_integer(std::string_view key) const {
  const GgufValue* value = find_value(key, false, Impl::is_integer, "an integer");
  if (value == nullptr) return std::nullopt;
  return number_at<std::int64_t>(*value, 0, m_source, key);
}

std::optional<double> GgufFile::find_number(std::string_view key) const {
  const GgufValue* value = find_value(key, false, Impl::is_number, "a number");
  if (value == nullptr) return std::nullopt;
  return number_at<double>(*value, 0, m_source, key);
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find_value(key, false, is_boolean, "a bool");
  if (value == nullptr) return std::nullopt;
  return value->bytes[0] != std::byte{0};
}

std::optional<std::vector<std::string>> GgufFile::find_strings(std::string_view key) const {
  const GgufValue* value = find_value(key, true, is_string, "an array of strings");
  if (value == nullptr) return std::nullopt;
  Impl::GgufCursor cursor(value->bytes, m_source);
  std::vector<std::string> strings;
  for (std::uint64_t i = 0; i < value->count; ++i) strings.emplace_back(cursor.string("a string"));
  return strings;
}

std::optional<std::vector<std::int64_t>> GgufFile::find_integers(std::string_view key) const {
  const GgufValue* value = find_value(key, true, Impl::is_integer, "an array of integers");
  if (value == nullptr) return std::nullopt;
  return numbers_of<std::int64_t>(*value, m_source, key);
}

std::optional<std::vector<double>> GgufFile::find_numbers(std::string_view key) const {
  const GgufValue* value = find_value(key, true, Impl::is_number, "an array of numbers");
  if (value == nullptr) return std::nullopt;
  return numbers_of<double>(*value, m_source, key);
}

}  // namespace kformer
