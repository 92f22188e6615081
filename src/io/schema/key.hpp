// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kformer/core/enum_names.hpp"

/// \file
/// The description of a key of a deck. Every table of a deck has one function
///
///     template <class Visitor> void describe(Visitor& v, RunTable& t);
///
/// which calls `v.key(Key, member)`, `v.table(TableKey, member)` and `v.list(TableKey, members)`. It is the
/// only list of the table's names; reading, checking, documentation, JSON Schema and the resolved deck are
/// visitors.

namespace kformer::Impl::schema {

/// Bounds of a number, both inclusive unless `above` says that the lower one is not.
struct Range {
  std::optional<double> min{};
  std::optional<double> max{};
  bool above = false;
};

/// Whether a number is finite and in the range.
bool within(double value, const Range& range);

/// The greatest number of a key that kernels compute with in float, whose own end is 3.4e38.
inline constexpr double most_in_float = 1e38;

/// A key with a value.
struct Key {
  const char* name;
  const char* help;
  Range range{};
  const char* unit = "";                    ///< "byte": a number of bytes or a text such as "8GiB"
  std::vector<std::string_view> choices{};  ///< of a string; of an enumeration, its first ones (all if empty)
  const char* default_text = "";            ///< in words, where the member's default says nothing
  bool required = false;
  bool repeatable = false;  ///< an array may hold a value more than once
  bool consumed = false;    ///< names a file to read, so the resolved deck does not have it
};

/// A table, or an array of tables.
struct TableKey {
  const char* name;
  const char* help;
  bool of_axes = false;  ///< an array of points on the axes of the table around it
};

enum class Kind { boolean, integer, real, string, path, bytes };

/// What a key accepts, according to the type of its member.
struct Type {
  Kind kind;
  std::vector<std::string_view> choices{};
  bool list = false;  ///< one value, or an array of them
};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

/// A key whose absence is meaningful.
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

inline bool names_bytes(const Key& key) { return std::string_view(key.unit) == "byte"; }

template <class T>
Type type_of(const Key& key) {
  if constexpr (IsVector<T>::value) {
    Type type = type_of<typename T::value_type>(key);
    type.list = true;
    return type;
  } else if constexpr (IsOptional<T>::value) {
    return type_of<typename T::value_type>(key);
  } else if constexpr (std::is_enum_v<T>) {
    constexpr auto names = names_of<T>;
    if (!key.choices.empty()) return {Kind::string, key.choices};
    return {Kind::string, {names.begin(), names.end()}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {Kind::boolean};
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return {names_bytes(key) ? Kind::bytes : Kind::integer};
  } else if constexpr (std::is_same_v<T, double>) {
    return {Kind::real};
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return {Kind::path};
  } else {
    static_assert(std::is_same_v<T, std::string>, "a deck has no values of this type");
    return {names_bytes(key) ? Kind::bytes : Kind::string, key.choices};
  }
}

/// "integer in [1, 10]", "one of "a", "b"": what a single value must be.
std::string words_for(const Type& type, const Range& range);

/// The same with its article and, for a list, with "or an array of them".
std::string expectation(const Type& type, const Range& range);

}  // namespace kformer::Impl::schema
