// SPDX-License-Identifier: MIT
#include "io/results/serialize.hpp"

#include <hdf5_hl.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>

#include "io/utf8.hpp"
#include "kformer/io/hdf5.hpp"

namespace kformer::Impl {
namespace {

using hdf5::check;

constexpr unsigned creation_order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
constexpr std::size_t memory_block = std::size_t{1} << 20;
constexpr hsize_t largest_chunk = hsize_t{1} << 16;

/// Extents of a dataset; an axis is extendable when rows could still be added along it.
struct Shape {
  std::vector<hsize_t> extents;
  std::vector<bool> extendable;
};

template <class T>
hid_t memory_type() {
  if constexpr (std::is_same_v<T, std::int8_t>) return H5T_NATIVE_INT8;
  if constexpr (std::is_same_v<T, std::int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::is_same_v<T, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return H5T_NATIVE_UINT64;
  if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
}

/// Calls `write(type, buffer)` with `items` in the form that HDF5 needs.
template <class T, class Write>
void with_buffer(const std::vector<T>& items, Write write) {
  if constexpr (std::is_same_v<T, std::string>) {
    std::vector<std::string> clean(items.size());
    std::transform(items.begin(), items.end(), clean.begin(), to_utf8);
    std::vector<const char*> pointers(items.size());
    std::transform(clean.begin(), clean.end(), pointers.begin(),
                   [](const std::string& text) { return text.c_str(); });
    write(hdf5::utf8_string_type().get(), static_cast<const void*>(pointers.data()));
  } else {
    write(memory_type<T>(), static_cast<const void*>(items.data()));
  }
}

hdf5::Dataspace make_space(const Shape& shape) {
  if (shape.extents.empty()) return hdf5::Dataspace(check(H5Screate(H5S_SCALAR), "create extents", "scalar"));
  std::vector<hsize_t> most = shape.extents;
  for (std::size_t i = 0; i < most.size(); ++i) {
    if (shape.extendable[i]) most[i] = H5S_UNLIMITED;
  }
  const int rank = static_cast<int>(most.size());
  return hdf5::Dataspace(
      check(H5Screate_simple(rank, shape.extents.data(), most.data()), "create extents", "array"));
}

hdf5::PropertyList make_properties(hid_t kind) {
  return hdf5::PropertyList(check(H5Pcreate(kind), "create", "property list"));
}

void write_attribute(hid_t object, const std::string& name, const Value& value) {
  const auto write_items = [&](const auto& items) {
    with_buffer(items, [&](hid_t type, const void* buffer) {
      const auto space = make_space(value.is_list() ? Shape{{items.size()}, {false}} : Shape{});
      const hdf5::Attribute attribute(
          check(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                "create attribute", name, object));
      check(H5Awrite(attribute.get(), type, buffer), "write attribute", name, object);
    });
  };
  std::visit(write_items, value.items());
}

void write_attributes(hid_t object, const std::map<std::string, ResultGroup::Attribute>& attributes) {
  for (const auto& [name, attribute] : attributes) write_attribute(object, name, attribute.value);
}

/// Writes the datasets of one group and remembers the dimension scales among them.
class GroupWriter {
 public:
  GroupWriter(hid_t group, int compression) : m_group(group), m_compression(compression) {}

  void write_text(const std::string& name, const ResultGroup::Text& text) {
    const auto dataset = write_dataset(name, Value(text.content).items(), Shape{}, nullptr);
    write_attribute(dataset.get(), "long_name", text.long_name);
  }

  void write_table(const Table& table) {
    m_shapes[table.row_dimension().name] = {{table.rows()}, {true}};
    for (const auto& dimension : table.dimensions()) {
      m_shapes[dimension.name] = {{dimension.ragged() ? longest_row(table, dimension.name) : dimension.size()},
                                  {dimension.ragged()}};
    }
    // The scales come first: the columns are attached to them.
    const auto& rows = table.row_dimension();
    const auto is_coordinate = [&](const Table::Data& data) { return data.column.name == rows.name; };
    const auto coordinate = std::find_if(table.columns().begin(), table.columns().end(), is_coordinate);
    if (coordinate == table.columns().end()) {
      write_scale(rows);
    } else {
      make_scale(rows.name, write_column(*coordinate, rows.name));
    }
    for (const auto& dimension : table.dimensions()) write_scale(dimension);
    for (const auto& data : table.columns()) {
      if (!is_coordinate(data)) attach_scales(write_column(data, rows.name), data.column, rows.name);
    }
  }

 private:
  static hsize_t longest_row(const Table& table, const std::string& dimension) {
    std::size_t longest = 0;
    for (const auto& data : table.columns()) {
      if (data.column.along != dimension || data.lengths.empty()) continue;
      longest = std::max(longest, *std::max_element(data.lengths.begin(), data.lengths.end()));
    }
    return longest;
  }

  hdf5::PropertyList dataset_properties(const Value::Items& items, const Shape& shape, const void* fill) const {
    auto properties = make_properties(H5P_DATASET_CREATE);
    const hid_t id = properties.get();
    check(H5Pset_attr_creation_order(id, creation_order), "set", "creation order");
    check(H5Pset_obj_track_times(id, false), "set", "no time stamps");
    if (shape.extents.empty()) return properties;
    std::vector<hsize_t> chunk = shape.extents;
    for (auto& extent : chunk) extent = std::clamp(extent, hsize_t{1}, largest_chunk);
    while (std::accumulate(chunk.begin(), chunk.end(), hsize_t{1}, std::multiplies<>()) > largest_chunk) {
      auto& widest = *std::max_element(chunk.begin(), chunk.end());
      widest = (widest + 1) / 2;
    }
    check(H5Pset_chunk(id, static_cast<int>(chunk.size()), chunk.data()), "set", "chunks");
    // Deflate would see only the references of variable-length texts, never the characters.
    if (std::holds_alternative<std::vector<std::string>>(items)) return properties;
    if (m_compression > 0)
      check(H5Pset_deflate(id, static_cast<unsigned>(m_compression)), "set", "compression");
    const auto set_fill = [&]<class T>(const std::vector<T>&) {
      if constexpr (!std::is_same_v<T, std::string>) {
        if (fill != nullptr) check(H5Pset_fill_value(id, memory_type<T>(), fill), "set", "fill value");
      }
    };
    std::visit(set_fill, items);
    return properties;
  }

  hdf5::Dataset write_dataset(const std::string& name, const Value::Items& items, const Shape& shape,
                              const void* fill) {
    const auto space = make_space(shape);
    const auto properties = dataset_properties(items, shape, fill);
    hdf5::Dataset dataset;
    const auto write_items = [&](const auto& list) {
      with_buffer(list, [&](hid_t type, const void* buffer) {
        dataset = hdf5::Dataset(check(
            H5Dcreate2(m_group, name.c_str(), type, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
            "create dataset", name, m_group));
        if (list.empty()) return;
        check(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer), "write dataset", name,
              m_group);
      });
    };
    std::visit(write_items, items);
    return dataset;
  }

  hdf5::Dataset write_column(const Table::Data& data, const std::string& row_dimension) {
    const Column& column = data.column;
    Shape shape = m_shapes.at(row_dimension);
    if (!column.along.empty()) {
      const Shape& along = m_shapes.at(column.along);
      shape.extents.push_back(along.extents[0]);
      shape.extendable.push_back(along.extendable[0]);
    }
    const bool has_fill = column.fill || (column.type == ColumnType::f64 && column.name != row_dimension);
    const auto write_padded = [&]<class T>(const std::vector<T>& items) {
      T fill{};
      if constexpr (std::is_same_v<T, double>) fill = std::numeric_limits<double>::quiet_NaN();
      if constexpr (std::is_integral_v<T>) fill = static_cast<T>(column.fill.value_or(0));
      auto dataset =
          write_dataset(column.name, column.along.empty() ? items : padded(data, items, shape.extents[1], fill),
                        shape, has_fill ? &fill : nullptr);
      if constexpr (!std::is_same_v<T, std::string>) {
        if (has_fill) write_attribute(dataset.get(), "_FillValue", fill);
        write_attribute(dataset.get(), "units", column.units);
      }
      return dataset;
    };
    auto dataset = std::visit(write_padded, data.items);
    write_attribute(dataset.get(), "long_name", column.long_name);
    if (column.type == ColumnType::flag) write_flag_attributes(dataset.get(), column.meanings);
    return dataset;
  }

  template <class T>
  static std::vector<T> padded(const Table::Data& data, const std::vector<T>& items, hsize_t width,
                               const T& fill) {
    std::vector<T> rectangle;
    rectangle.reserve(data.lengths.size() * width);
    auto next = items.begin();
    for (const std::size_t length : data.lengths) {
      rectangle.insert(rectangle.end(), next, next + static_cast<std::ptrdiff_t>(length));
      rectangle.resize(rectangle.size() + (width - length), fill);
      next += static_cast<std::ptrdiff_t>(length);
    }
    return rectangle;
  }

  static void write_flag_attributes(hid_t dataset, const std::vector<std::string>& meanings) {
    std::vector<std::int8_t> values(meanings.size());
    std::iota(values.begin(), values.end(), std::int8_t{0});
    std::string words;
    for (const auto& meaning : meanings) words += (words.empty() ? "" : " ") + meaning;
    write_attribute(dataset, "flag_values", values);
    write_attribute(dataset, "flag_meanings", words);
  }

  void write_scale(const Table::Dimension& dimension) {
    const Shape& shape = m_shapes.at(dimension.name);
    const auto write = [&](const Value& coordinate) {
      auto dataset = write_dataset(dimension.name, coordinate.items(), shape, nullptr);
      if (dimension.labels.empty()) write_attribute(dataset.get(), "units", dimension.units);
      write_attribute(dataset.get(), "long_name", dimension.long_name);
      make_scale(dimension.name, std::move(dataset));
    };
    if (!dimension.labels.empty()) return write(dimension.labels);
    if (!dimension.numbers.empty()) return write(dimension.numbers);
    std::vector<std::int32_t> running(shape.extents[0]);
    std::iota(running.begin(), running.end(), 0);
    write(running);
  }

  void make_scale(const std::string& name, hdf5::Dataset dataset) {
    check(H5DSset_scale(dataset.get(), name.c_str()), "make dimension scale", name, m_group);
    m_scales.insert_or_assign(name, std::move(dataset));
  }

  void attach_scales(const hdf5::Dataset& dataset, const Column& column, const std::string& row_dimension) {
    const auto attach = [&](const std::string& scale, unsigned axis) {
      check(H5DSattach_scale(dataset.get(), m_scales.at(scale).get(), axis), "attach dimension scale", scale,
            m_group);
    };
    attach(row_dimension, 0);
    if (!column.along.empty()) attach(column.along, 1);
  }

  hid_t m_group;
  int m_compression;
  std::map<std::string, Shape> m_shapes;
  std::map<std::string, hdf5::Dataset> m_scales;
};

/// Opens the group at `path`, making it and the groups above it where they do not exist.
hdf5::Group make_group(hid_t file, const std::string& path) {
  const auto properties = make_properties(H5P_GROUP_CREATE);
  check(H5Pset_link_creation_order(properties.get(), creation_order), "set", "creation order");
  check(H5Pset_attr_creation_order(properties.get(), creation_order), "set", "creation order");
  check(H5Pset_obj_track_times(properties.get(), false), "set", "no time stamps");
  hdf5::Group group(check(H5Gopen2(file, "/", H5P_DEFAULT), "open group", "/", file));
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const bool exists =
        check(H5Lexists(group.get(), name.c_str(), H5P_DEFAULT), "look for group", name, group.get()) > 0;
    const hid_t id = exists ? H5Gopen2(group.get(), name.c_str(), H5P_DEFAULT)
                            : H5Gcreate2(group.get(), name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT);
    group = hdf5::Group(check(id, "create group", name, group.get()));
    begin = end + 1;
  }
  return group;
}

hdf5::File make_memory_file(const std::string& name) {
  const auto access = make_properties(H5P_FILE_ACCESS);
  check(H5Pset_fapl_core(access.get(), memory_block, false), "keep in memory", name);
  const auto creation = make_properties(H5P_FILE_CREATE);
  check(H5Pset_link_creation_order(creation.get(), creation_order), "set", "creation order");
  check(H5Pset_attr_creation_order(creation.get(), creation_order), "set", "creation order");
  check(H5Pset_obj_track_times(creation.get(), false), "set", "no time stamps");
  return hdf5::File(
      check(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), "create file", name));
}

}  // namespace

std::vector<std::byte> serialize(const ResultContents& contents, const std::string& file_name,
                                 int compression) {
  const hdf5::QuietErrors quiet;
  const hdf5::File file = make_memory_file(file_name);
  const auto write_group = [&](const std::string& path, const ResultGroup& content, const Table* table) {
    const hdf5::Group group = make_group(file.get(), path);
    GroupWriter writer(group.get(), compression);
    write_attributes(group.get(), content.attributes());
    for (const auto& [name, text] : content.texts()) writer.write_text(name, text);
    if (table != nullptr) writer.write_table(*table);
  };
  for (const auto& [path, group] : contents.groups) write_group(path, group, nullptr);
  for (const auto& [path, table] : contents.tables) {
    if (table.rows() > 0) write_group(path, table, &table);
  }
  check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "write file", file_name);
  const ssize_t size = check(H5Fget_file_image(file.get(), nullptr, 0), "measure file", file_name);
  std::vector<std::byte> image(static_cast<std::size_t>(size));
  check(H5Fget_file_image(file.get(), image.data(), image.size()), "copy file", file_name);
  return image;
}

}  // namespace kformer::Impl
