// SPDX-License-Identifier: MIT
#include "io/results/unfinished_file.hpp"

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/hdf5_size.hpp"
#include "io/regular_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

using hdf5::check;

/// What a column holds in the file: `width` items in each row.
struct StoredColumn {
  Value::Items items;
  std::size_t width = 1;
};

std::vector<hsize_t> extents_of(hid_t dataset, const std::string& name) {
  const hdf5::Dataspace space(check(H5Dget_space(dataset), "measure", name));
  std::vector<hsize_t> extents(
      static_cast<std::size_t>(check(H5Sget_simple_extent_ndims(space.get()), "measure", name)));
  check(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), "measure", name);
  return extents;
}

std::vector<std::string> take_texts(hid_t space, hid_t type, std::vector<char*>& pointers) {
  std::vector<std::string> texts;
  for (const char* text : pointers) texts.emplace_back(text == nullptr ? "" : text);
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, pointers.data());
  return texts;
}

template <class T>
std::vector<T> read_items(hid_t dataset, hid_t type, const std::string& name, std::size_t count) {
  std::vector<T> items(count);
  if (count > 0)
    check(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data()), "read dataset", name);
  return items;
}

std::vector<std::string> read_texts(hid_t dataset, const std::string& name, std::size_t count) {
  const auto type = hdf5::utf8_string_type();
  const hdf5::Dataspace space(check(H5Dget_space(dataset), "measure", name));
  auto pointers = read_items<char*>(dataset, type.get(), name, count);
  return take_texts(space.get(), type.get(), pointers);
}

Value::Items read_items(hid_t dataset, ColumnType type, const std::string& name, std::size_t count) {
  switch (type) {
    case ColumnType::f64:
      return read_items<double>(dataset, H5T_NATIVE_DOUBLE, name, count);
    case ColumnType::i64:
      return read_items<std::int64_t>(dataset, H5T_NATIVE_INT64, name, count);
    case ColumnType::i32:
      return read_items<std::int32_t>(dataset, H5T_NATIVE_INT32, name, count);
    case ColumnType::u64:
      return read_items<std::uint64_t>(dataset, H5T_NATIVE_UINT64, name, count);
    case ColumnType::flag:
      return read_items<std::int8_t>(dataset, H5T_NATIVE_INT8, name, count);
    case ColumnType::text:
      break;
  }
  return read_texts(dataset, name, count);
}

/// Whether an item is what rows are padded with.
template <class T>
bool is_fill(const T& item, const Column& column) {
  if constexpr (std::is_same_v<T, double>) return item != item;
  if constexpr (std::is_same_v<T, std::string>) return item.empty();
  if constexpr (std::is_integral_v<T>) return column.fill && std::cmp_equal(item, *column.fill);
}

/// The items of a row, without padding where rows may differ in length.
Value cell_of(const StoredColumn& stored, const Column& column, bool ragged, std::size_t row) {
  return std::visit(
      [&]<class T>(const std::vector<T>& items) -> Value {
        if (column.along.empty()) return items[row];
        const auto begin = items.begin() + static_cast<std::ptrdiff_t>(row * stored.width);
        std::vector<T> list(begin, begin + static_cast<std::ptrdiff_t>(stored.width));
        while (ragged && !list.empty() && is_fill(list.back(), column)) list.pop_back();
        return list;
      },
      stored.items);
}

std::string text_of_attribute(hid_t object, const std::string& name) {
  const hdf5::Attribute attribute(check(H5Aopen(object, name.c_str(), H5P_DEFAULT), "open attribute", name));
  const hdf5::Datatype type(check(H5Aget_type(attribute.get()), "read attribute", name));
  const hdf5::Dataspace space(check(H5Aget_space(attribute.get()), "measure", name));
  if (H5Sget_simple_extent_npoints(space.get()) != 1) return {};
  if (H5Tget_class(type.get()) == H5T_INTEGER) {
    std::int64_t number = 0;
    check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &number), "read attribute", name);
    return std::to_string(number);
  }
  const auto text_type = hdf5::utf8_string_type();
  if (H5Tget_class(type.get()) != H5T_STRING) return {};
  std::vector<char*> pointers(1);
  check(H5Aread(attribute.get(), text_type.get(), pointers.data()), "read attribute", name);
  return take_texts(space.get(), text_type.get(), pointers).front();
}

}  // namespace

UnfinishedFile::UnfinishedFile(const std::filesystem::path& path)
    : m_name(path.string()), m_bytes(RegularFile(path).size()) {
  const hdf5::QuietErrors quiet;
  m_file = hdf5::File(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "open", m_name));
}

hdf5::Dataset UnfinishedFile::open(hid_t group, const std::string& name) const {
  hdf5::Dataset dataset(check(H5Dopen2(group, name.c_str(), H5P_DEFAULT), "open", name));
  if (const auto fault = false_size_of(dataset.get(), m_bytes))
    throw FileError("'" + m_name + "' cannot be continued: '" + name + "' " + *fault);
  return dataset;
}

std::string UnfinishedFile::text(const std::string& path, const std::string& name) const {
  const hdf5::QuietErrors quiet;
  const hdf5::Group group(H5Gopen2(m_file.get(), ("/" + path).c_str(), H5P_DEFAULT));
  if (group.get() < 0) return {};
  if (H5Aexists(group.get(), name.c_str()) > 0) return text_of_attribute(group.get(), name);
  if (H5Lexists(group.get(), name.c_str(), H5P_DEFAULT) <= 0) return {};
  const hdf5::Dataset dataset = open(group.get(), name);
  return extents_of(dataset.get(), name).empty() ? read_texts(dataset.get(), name, 1).front() : std::string();
}

void UnfinishedFile::append_rows(const std::string& path, Table& table) const {
  const hdf5::QuietErrors quiet;
  const hdf5::Group group(H5Gopen2(m_file.get(), ("/" + path).c_str(), H5P_DEFAULT));
  if (group.get() < 0) return;
  const auto refuse = [&](const std::string& column, const std::string& reason) {
    throw FileError("'" + m_name + "' cannot be continued: column '" + column + "' of '" + path + "' " +
                    reason + "; another version of the program wrote it");
  };
  std::vector<StoredColumn> stored;
  std::optional<hsize_t> rows;
  for (const Table::Data& data : table.columns()) {
    const Column& column = data.column;
    if (H5Lexists(group.get(), column.name.c_str(), H5P_DEFAULT) <= 0) refuse(column.name, "is missing");
    const hdf5::Dataset dataset = open(group.get(), column.name);
    const auto extents = extents_of(dataset.get(), column.name);
    if (extents.size() != (column.along.empty() ? 1 : 2) || extents[0] != rows.value_or(extents[0]))
      refuse(column.name, "has other dimensions");
    rows = extents[0];
    const std::size_t width = column.along.empty() ? 1 : extents[1];
    stored.push_back({read_items(dataset.get(), column.type, column.name, extents[0] * width), width});
  }
  for (hsize_t row = 0; row < rows.value_or(0); ++row) {
    std::vector<Table::Cell> cells;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const Column& column = table.columns()[i].column;
      cells.emplace_back(column.name, cell_of(stored[i], column, table.is_ragged(column.along), row));
    }
    table.append(cells);
  }
}

}  // namespace kformer::Impl
