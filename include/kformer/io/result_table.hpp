// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// \file
/// The contents of one group of a result file, in memory: attributes, texts, and (in a table) named dimensions
/// and columns. Nothing here touches a file; ResultFile writes it.

namespace kformer {

namespace Impl {

template <class T>
struct StoredType {
  using type = std::string;
};
template <std::integral T>
struct StoredType<T> {
  using type = std::conditional_t<
      std::is_same_v<T, bool> || std::is_same_v<T, std::int8_t>, std::int8_t,
      std::conditional_t<std::is_unsigned_v<T> && sizeof(T) == 8, std::uint64_t,
                         std::conditional_t<(std::is_unsigned_v<T> ? 2 * sizeof(T) : sizeof(T)) <= 4,
                                            std::int32_t, std::int64_t>>>;
};
template <std::floating_point T>
struct StoredType<T> {
  using type = double;
};

}  // namespace Impl

/// A scalar or a list of one of the types that a result file stores: i8 (also bool), i32, i64, u64, f64, text.
class Value {
 public:
  /// The items, all of one type; a scalar is a list of one.
  using Items = std::variant<std::vector<std::int8_t>, std::vector<std::int32_t>, std::vector<std::int64_t>,
                             std::vector<std::uint64_t>, std::vector<double>, std::vector<std::string>>;

  /// A number or bool, stored as the smallest of the types above that holds every value of `T`.
  template <class T>
    requires std::integral<T> || std::floating_point<T>
  Value(T number) : Value(std::vector<T>{number}) {
    m_is_list = false;
  }
  /// A text.
  Value(std::string text) : m_items(std::vector<std::string>{std::move(text)}) {}
  /// A text.
  Value(std::string_view text) : Value(std::string(text)) {}
  /// A text.
  Value(const char* text) : Value(std::string(text)) {}
  /// A list; the element type is chosen as for a scalar.
  template <class T>
  Value(const std::vector<T>& list)
      : m_items(std::vector<typename Impl::StoredType<T>::type>(list.begin(), list.end())), m_is_list(true) {}

  /// The items.
  const Items& items() const { return m_items; }
  /// Whether this was made from a list.
  bool is_list() const { return m_is_list; }

 private:
  Items m_items;
  bool m_is_list = false;
};

/// Attributes and texts of one group of a result file.
class ResultGroup {
 public:
  /// A text stored as a separate dataset (decks, logs), and its description.
  struct Text {
    std::string content;    ///< the text
    std::string long_name;  ///< description, one line
  };
  /// An attribute, and its description, which stands only in the schema.
  struct Attribute {
    Value value;              ///< what is stored
    std::string description;  ///< one line
  };

  /// Sets attribute `name`; a second call replaces the value, and the description unless that is empty.
  ResultGroup& attribute(const std::string& name, Value value, const std::string& description = {});

  /// Sets the scalar text dataset `name`; a second call replaces it. Bytes that are not UTF-8 become U+FFFD.
  ResultGroup& text(const std::string& name, std::string content, std::string long_name);

  /// Says for the schema where files have this group, such as "with [profile] kernels". Files that are complete
  /// always have a group of which nothing is said.
  ResultGroup& when(std::string condition);

  /// All attributes by name.
  const std::map<std::string, Attribute>& attributes() const { return m_attributes; }
  /// All texts by name.
  const std::map<std::string, Text>& texts() const { return m_texts; }
  /// Where files have the group; empty: always.
  const std::string& condition() const { return m_condition; }

 private:
  std::map<std::string, Attribute> m_attributes;
  std::map<std::string, Text> m_texts;
  std::string m_condition;
};

/// Element type of a column. A flag is an 8-bit number whose meanings are named (CF conventions); bools are the
/// flag {no, yes}.
enum class ColumnType { f64, i64, i32, u64, flag, text };

/// Where a column of numbers may hold NaN. In a table with a column `status`, `unless_ok` says that rows whose status is ok
/// hold a number.
enum class NanAllowed { always, unless_ok, never };

/// Declaration of a column of a Table.
struct Column {
  std::string name;  ///< name of the dataset; that of the row dimension makes it its coordinate
  ColumnType type = ColumnType::f64;       ///< element type
  std::string units = "1";                 ///< such as s, byte, 1/s; not stored for texts
  std::string long_name = {};              ///< description, one line; required
  std::string along = {};                  ///< second dimension, or empty: one item per row
  std::vector<std::string> meanings = {};  ///< of the flag values 0, 1, 2, ...; each without blanks
  std::optional<std::int64_t> fill = {};   ///< means "no value" in an integer or flag column; f64 has NaN
  NanAllowed nan = NanAllowed::always;     ///< for the schema: where an f64 column may hold NaN
  std::string when = {};                   ///< for the schema: where files have the column; empty: always
};

/// The column, which holds a number in every row.
inline Column finite(Column column) {
  column.nan = NanAllowed::never;
  return column;
}

/// The column, which holds a number in every row whose status is ok.
inline Column finite_if_ok(Column column) {
  column.nan = NanAllowed::unless_ok;
  return column;
}

/// A table of a result file: rows appended one by one, so that all columns always have the same length.
///
/// The first dimension is that of the rows. A column may have a second dimension, either with labels or numbers
/// (every row has exactly that many items) or ragged (rows may differ in length and are padded with the fill
/// value). Every dimension gets a coordinate dataset: the column of its name, its labels or numbers, or a
/// running number from 0.
class Table : public ResultGroup {
 public:
  /// A second dimension of the table.
  struct Dimension {
    std::string name;                   ///< name of the dimension and of its coordinate dataset
    std::string long_name;              ///< what it counts, one line
    std::vector<std::string> labels;    ///< its coordinate, if that is texts
    std::vector<std::int64_t> numbers;  ///< its coordinate, if that is numbers
    std::string units = "1";            ///< of the numbers

    /// Items of a row; 0 if rows may differ.
    std::size_t size() const { return std::max(labels.size(), numbers.size()); }
    /// Whether rows may differ in length.
    bool ragged() const { return size() == 0; }
  };
  /// A column with its items: one per row, or `lengths[row]` consecutive items per row.
  struct Data {
    Column column;                     ///< as declared
    Value::Items items;                ///< of the column's element type
    std::vector<std::size_t> lengths;  ///< per row; only for columns with a second dimension
  };
  /// A value for append(), by column name.
  using Cell = std::pair<std::string, Value>;

  /// An empty table.
  /// \param name          for error texts
  /// \param row_dimension name of the dimension of the rows
  /// \param long_name     what a row is, one line
  Table(std::string name, std::string row_dimension, std::string long_name);

  /// Declares a second dimension.
  /// \throws Error if the name is taken
  Table& dimension(std::string name, std::string long_name, std::vector<std::string> labels = {});

  /// Declares a second dimension whose coordinate is numbers, such as sequence lengths.
  /// \throws Error if the name is taken
  Table& numbered_dimension(std::string name, std::string long_name, std::vector<std::int64_t> numbers,
                            std::string units = "1");

  /// Declares a column; all columns are declared before the first row.
  /// \throws Error naming the column and the rule it breaks
  Table& column(Column column);

  /// Appends one row: a value for every column, in any order. Columns with a fill value (all f64 columns have
  /// one) may be left out. Numbers are converted to the column's type if nothing is lost; flags are given by
  /// meaning, number or bool. On an error the table is unchanged.
  /// \throws Error naming the table, the column, what was expected, and similar names for an unknown one
  Table& append(const std::vector<Cell>& cells);

  /// Drops the rows after the first `rows`. With as many or fewer nothing happens.
  void keep_rows(std::size_t rows);

  /// Number of rows.
  std::size_t rows() const { return m_rows; }
  /// What column `name` has in a row: an item, or a list where it has a second dimension.
  /// \throws Error if there is no such column or row
  Value value(const std::string& name, std::size_t row) const;
  /// Whether the rows of columns along this dimension may differ in length.
  bool is_ragged(const std::string& dimension) const;
  /// The row dimension (it has neither labels nor numbers).
  const Dimension& row_dimension() const { return m_row_dimension; }
  /// The second dimensions in the order of their declaration.
  const std::vector<Dimension>& dimensions() const { return m_dimensions; }
  /// The columns in the order of their declaration.
  const std::vector<Data>& columns() const { return m_columns; }

 private:
  [[noreturn]] void refuse(const char* function, const std::string& reason) const;
  const Dimension* find_dimension(const std::string& name) const;
  Table& add(Dimension dimension);
  Value::Items checked(const Column& column, const Value& value) const;
  Value::Items filled(const Column& column) const;

  std::string m_name;
  Dimension m_row_dimension;
  std::vector<Dimension> m_dimensions;
  std::vector<Data> m_columns;
  std::size_t m_rows = 0;
};

}  // namespace kformer
