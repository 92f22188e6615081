// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kformer::Impl::schema {

/// A source of values: a deck, a config.json, or one --set.
struct SourceText {
  std::string name;                 ///< as errors print it
  std::filesystem::path directory;  ///< relative paths in this text start here
  std::string text;
  int rank = 0;  ///< order in which errors are reported
};

/// A position in a text. Line and column count from 1 in code points; 0 = the text as a whole.
struct Place {
  std::shared_ptr<const SourceText> source;
  int line = 0;
  int column = 0;
  int length = 0;  ///< code points to underline
};

struct Entry;
struct Value;
using Array = std::vector<Value>;
using Table = std::vector<Entry>;

/// The place of the byte at `offset`.
Place place_of_byte(const std::shared_ptr<const SourceText>& source, std::size_t offset);

/// A TOML kind that no deck key has: a date, a time or both.
struct Timestamp {};

/// A value of a deck with its place in its source.
struct Value {
  std::variant<bool, std::int64_t, double, std::string, Timestamp, Array, Table> data;
  Place place;
};

/// A key of a table with its value.
struct Entry {
  std::string key;
  Place place;
  Value value;
};

/// The entry named `key`, or null.
const Entry* find(const Table& table, std::string_view key);
/// \copydoc find
Entry* find(Table& table, std::string_view key);

/// The entry at the end of a path of keys through tables, or null.
const Entry* find_path(const Table& table, const std::vector<std::string>& path);

/// Puts the entries of `over` into `base`: tables are merged, everything else is replaced.
void merge(Table& base, Table over);

/// "string "many"", "integer 3", "an array": the "got" part of an error text.
std::string shown(const Value& value);

}  // namespace kformer::Impl::schema
