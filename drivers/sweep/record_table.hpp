// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kformer/io/result_file.hpp"

namespace kformer::drivers {

/// A table of a result file whose rows are records: each column is declared beside the value that it takes.
template <class Record>
class RecordTable {
 public:
  /// A column, and its value of a record: a member, or a function of the record.
  struct Field {
    Column column;
    std::function<Value(const Record&)> value;
  };

  /// Declares the columns in `table`.
  RecordTable(Table& table, std::vector<Field> fields) : m_table(table), m_fields(std::move(fields)) {
    for (const Field& field : m_fields) m_table.column(field.column);
  }

  /// Appends a row.
  void append(const Record& record) {
    std::vector<Table::Cell> cells;
    for (const Field& field : m_fields) cells.emplace_back(field.column.name, field.value(record));
    m_table.append(cells);
  }

  /// Number of rows.
  std::size_t rows() const { return m_table.rows(); }
  /// The table, for its attributes.
  Table& table() { return m_table; }

 private:
  Table& m_table;
  std::vector<Field> m_fields;
};

}  // namespace kformer::drivers
