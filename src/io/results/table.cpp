// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "io/nearest_name.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/result_table.hpp"

namespace kformer {
namespace {

Value::Items no_items(ColumnType type) {
  switch (type) {
    case ColumnType::f64:
      return std::vector<double>{};
    case ColumnType::i64:
      return std::vector<std::int64_t>{};
    case ColumnType::i32:
      return std::vector<std::int32_t>{};
    case ColumnType::u64:
      return std::vector<std::uint64_t>{};
    case ColumnType::flag:
      return std::vector<std::int8_t>{};
    case ColumnType::text:
      break;
  }
  return std::vector<std::string>{};
}

const char* described(ColumnType type) {
  switch (type) {
    case ColumnType::f64:
      return "numbers";
    case ColumnType::i64:
      return "64-bit integers";
    case ColumnType::i32:
      return "32-bit integers";
    case ColumnType::u64:
      return "unsigned 64-bit integers";
    case ColumnType::flag:
      return "flags";
    case ColumnType::text:
      break;
  }
  return "texts";
}

std::size_t size_of(const Value::Items& items) {
  return std::visit([](const auto& list) { return list.size(); }, items);
}

/// Converts without loss of magnitude or sign; false if the types or a value do not allow it.
bool convert(const Value::Items& from, Value::Items& to) {
  const auto convert_list = []<class From, class To>(const std::vector<From>& source, std::vector<To>& target) {
    if constexpr (std::is_same_v<From, To>) {
      target = source;
      return true;
    } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
      target.assign(source.begin(), source.end());
      return std::all_of(source.begin(), source.end(), [](From item) { return std::in_range<To>(item); });
    } else if constexpr (std::is_integral_v<From> && std::is_same_v<To, double>) {
      target.assign(source.begin(), source.end());
      return true;
    } else {
      return false;
    }
  };
  return std::visit(convert_list, from, to);
}

/// The value of a flag's meaning, or -1.
int flag_value(const Column& column, const std::string& meaning) {
  const auto place = std::find(column.meanings.begin(), column.meanings.end(), meaning);
  return place == column.meanings.end() ? -1 : static_cast<int>(place - column.meanings.begin());
}

void append_items(Value::Items& to, Value::Items&& from) {
  const auto move_list = []<class From, class To>(std::vector<From>& source, std::vector<To>& target) {
    if constexpr (std::is_same_v<From, To>) {
      std::move(source.begin(), source.end(), std::back_inserter(target));
    }
  };
  std::visit(move_list, from, to);
}

void keep_items(Value::Items& items, std::size_t count) {
  std::visit([count](auto& list) { list.resize(count); }, items);
}

}  // namespace

ResultGroup& ResultGroup::attribute(const std::string& name, Value value, const std::string& description) {
  const auto [place, is_new] = m_attributes.try_emplace(name, Attribute{value, description});
  if (is_new) return *this;
  place->second.value = std::move(value);
  if (!description.empty()) place->second.description = description;
  return *this;
}

ResultGroup& ResultGroup::when(std::string condition) {
  m_condition = std::move(condition);
  return *this;
}

ResultGroup& ResultGroup::text(const std::string& name, std::string content, std::string long_name) {
  m_texts.insert_or_assign(name, Text{std::move(content), std::move(long_name)});
  return *this;
}

Table::Table(std::string name, std::string row_dimension, std::string long_name)
    : m_name(std::move(name)), m_row_dimension{std::move(row_dimension), std::move(long_name), {}, {}} {}

void Table::refuse(const char* function, const std::string& reason) const {
  throw Error(std::string("kformer::Table::") + function + ": table '" + m_name + "': " + reason);
}

const Table::Dimension* Table::find_dimension(const std::string& name) const {
  const auto place = std::find_if(m_dimensions.begin(), m_dimensions.end(),
                                  [&](const Dimension& dimension) { return dimension.name == name; });
  return place == m_dimensions.end() ? nullptr : &*place;
}

Table& Table::add(Dimension dimension) {
  if (dimension.name == m_row_dimension.name || find_dimension(dimension.name) != nullptr) {
    refuse("dimension", "the name '" + dimension.name + "' is taken");
  }
  m_dimensions.push_back(std::move(dimension));
  return *this;
}

Table& Table::dimension(std::string name, std::string long_name, std::vector<std::string> labels) {
  return add({std::move(name), std::move(long_name), std::move(labels), {}});
}

Table& Table::numbered_dimension(std::string name, std::string long_name, std::vector<std::int64_t> numbers,
                                 std::string units) {
  return add({std::move(name), std::move(long_name), {}, std::move(numbers), std::move(units)});
}

Table& Table::column(Column column) {
  const std::string quoted = "column '" + column.name + "' ";
  const auto refuse_column = [&](const std::string& reason) { refuse("column", quoted + reason); };
  const Dimension* along = find_dimension(column.along);
  const bool is_number = column.type != ColumnType::f64 && column.type != ColumnType::text;
  const bool taken = std::any_of(m_columns.begin(), m_columns.end(),
                                 [&](const Data& other) { return other.column.name == column.name; });
  if (m_rows > 0) refuse_column("comes after the first row; declare all columns before it");
  if (taken || find_dimension(column.name) != nullptr) refuse_column("has a name that is taken");
  if (column.long_name.empty()) refuse_column("needs a long_name");
  if (!column.along.empty() && along == nullptr)
    refuse_column("is along '" + column.along + "', which is not a dimension");
  if (column.name == m_row_dimension.name && along != nullptr)
    refuse_column("is a coordinate and cannot have an 'along'");
  if ((column.type == ColumnType::flag) == column.meanings.empty()) {
    refuse_column("must have meanings if and only if it is a flag");
  }
  if (column.meanings.size() > std::size_t{std::numeric_limits<std::int8_t>::max()}) {
    refuse_column("has more meanings than 8 bits can number");
  }
  for (const auto& meaning : column.meanings) {
    if (meaning.empty() || meaning.find_first_of(" \t\n") != std::string::npos) {
      refuse_column("has the meaning '" + meaning + "'; meanings are single words");
    }
  }
  if (column.fill && !is_number) refuse_column("cannot have a fill value: only integers and flags can");
  if (along != nullptr && along->ragged() && is_number && !column.fill) {
    refuse_column("needs a fill value, because its rows may differ in length");
  }
  Value::Items fill = no_items(column.type);
  if (column.fill && !convert(Value(*column.fill).items(), fill))
    refuse_column("has a fill value out of its range");
  m_columns.push_back({column, no_items(column.type), {}});
  return *this;
}

Value Table::value(const std::string& name, std::size_t row) const {
  const auto data =
      std::ranges::find(m_columns, name, [](const Data& d) -> const auto& { return d.column.name; });
  if (data == m_columns.end() || row >= m_rows)
    refuse("value", "there is no row " + std::to_string(row) + " of column '" + name + "'");
  const auto lengths = data->lengths.begin();
  return std::visit(
      [&]<class T>(const std::vector<T>& items) -> Value {
        if (data->column.along.empty()) return items[row];
        const auto at = static_cast<std::ptrdiff_t>(row);
        const auto before = std::accumulate(lengths, lengths + at, std::size_t{0});
        const auto begin = items.begin() + static_cast<std::ptrdiff_t>(before);
        return std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(lengths[at]));
      },
      data->items);
}

bool Table::is_ragged(const std::string& dimension) const {
  const Dimension* found = find_dimension(dimension);
  return found != nullptr && found->ragged();
}

Value::Items Table::checked(const Column& column, const Value& value) const {
  const std::string quoted = "column '" + column.name + "' ";
  Value::Items items = no_items(column.type);
  const auto* texts = std::get_if<std::vector<std::string>>(&value.items());
  if (column.type == ColumnType::flag && texts != nullptr) {
    std::vector<std::int8_t> flags;
    for (const auto& text : *texts) {
      const int flag = flag_value(column, text);
      if (flag < 0)
        refuse("append", quoted + "has no meaning '" + text + "'" + Impl::suggest_names(text, column.meanings));
      flags.push_back(static_cast<std::int8_t>(flag));
    }
    items = std::move(flags);
  } else if (!convert(value.items(), items)) {
    refuse("append",
           quoted + "holds " + described(column.type) + ", and the value given is not one or is out of range");
  }
  if (column.type == ColumnType::flag)
    for (const std::int8_t flag : std::get<std::vector<std::int8_t>>(items))
      if ((flag < 0 || flag >= std::ssize(column.meanings)) && flag != column.fill)
        refuse("append", quoted + "has no meaning " + std::to_string(flag));
  const Dimension* along = find_dimension(column.along);
  if (along == nullptr && value.is_list()) refuse("append", quoted + "takes one item per row, not a list");
  if (along != nullptr && !along->ragged() && size_of(items) != along->size()) {
    refuse("append", quoted + "takes " + std::to_string(along->size()) + " items, one per " + along->name +
                         ", not " + std::to_string(size_of(items)));
  }
  return items;
}

Value::Items Table::filled(const Column& column) const {
  const Dimension* along = find_dimension(column.along);
  const std::size_t count = along == nullptr ? 1 : along->size();
  Value::Items items = no_items(column.type);
  if (column.type == ColumnType::f64) {
    items = std::vector<double>(count, std::numeric_limits<double>::quiet_NaN());
  } else if (column.fill) {
    convert(Value(std::vector<std::int64_t>(count, *column.fill)).items(), items);
  } else {
    refuse("append", "the row lacks column '" + column.name + "', which has no fill value");
  }
  return items;
}

Table& Table::append(const std::vector<Cell>& cells) {
  std::vector<const Value*> given(m_columns.size(), nullptr);
  for (const auto& [name, value] : cells) {
    const auto place = std::find_if(m_columns.begin(), m_columns.end(),
                                    [&name = name](const Data& data) { return data.column.name == name; });
    if (place == m_columns.end()) {
      std::vector<std::string> known;
      for (const auto& data : m_columns) known.push_back(data.column.name);
      refuse("append", "no column '" + name + "'" + Impl::suggest_names(name, known));
    }
    const Value*& slot = given[static_cast<std::size_t>(place - m_columns.begin())];
    if (slot != nullptr) refuse("append", "column '" + name + "' is given twice");
    slot = &value;
  }
  std::vector<Value::Items> row;
  for (std::size_t i = 0; i < m_columns.size(); ++i) {
    const Column& column = m_columns[i].column;
    row.push_back(given[i] != nullptr ? checked(column, *given[i]) : filled(column));
  }
  for (std::size_t i = 0; i < m_columns.size(); ++i) {
    if (!m_columns[i].column.along.empty()) m_columns[i].lengths.push_back(size_of(row[i]));
    append_items(m_columns[i].items, std::move(row[i]));
  }
  ++m_rows;
  return *this;
}

void Table::keep_rows(std::size_t rows) {
  if (rows >= m_rows) return;
  for (Data& data : m_columns) {
    std::size_t items = rows;
    if (!data.column.along.empty()) {
      data.lengths.resize(rows);
      items = std::accumulate(data.lengths.begin(), data.lengths.end(), std::size_t{0});
    }
    keep_items(data.items, items);
  }
  m_rows = rows;
}

}  // namespace kformer
