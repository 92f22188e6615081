// SPDX-License-Identifier: MIT
#pragma once

#include <hdf5_hl.h>

#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include "kformer/io/hdf5.hpp"

namespace kformer::Testing {

/// Reads back a result file, using only HDF5. Everything throws FileError.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(const std::filesystem::path& path)
      : m_file(hdf5::check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "open", path.string())) {}

  bool has(const std::string& path) const { return H5Lexists(m_file.get(), path.c_str(), H5P_DEFAULT) > 0; }

  /// Names of the members of the group `path`, in the order of creation.
  std::vector<std::string> names(const std::string& path) const {
    const hdf5::Group group(hdf5::check(H5Gopen2(m_file.get(), path.c_str(), H5P_DEFAULT), "open", path));
    H5G_info_t info{};
    hdf5::check(H5Gget_info(group.get(), &info), "count", path);
    std::vector<std::string> names;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      char name[256] = {};
      hdf5::check(H5Lget_name_by_idx(group.get(), ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, name, sizeof(name),
                                     H5P_DEFAULT),
                  "name", path);
      names.emplace_back(name);
    }
    return names;
  }

  std::vector<hsize_t> extents(const std::string& path) const {
    const hdf5::Dataset dataset = open_dataset(path);
    const hdf5::Dataspace space(hdf5::check(H5Dget_space(dataset.get()), "measure", path));
    std::vector<hsize_t> extents(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.get())));
    hdf5::check(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), "measure", path);
    return extents;
  }

  /// Whether every axis has exactly one dimension scale (a scale itself has none).
  bool has_scales(const std::string& path) const {
    const hdf5::Dataset dataset = open_dataset(path);
    if (H5DSis_scale(dataset.get()) > 0) return true;
    const auto rank = static_cast<unsigned>(extents(path).size());
    for (unsigned axis = 0; axis < rank; ++axis) {
      if (H5DSget_num_scales(dataset.get(), axis) != 1) return false;
    }
    return true;
  }

  /// All items of a numeric dataset, converted to double.
  std::vector<double> numbers(const std::string& path) const {
    std::vector<double> items(count(path));
    const hdf5::Dataset dataset = open_dataset(path);
    hdf5::check(H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, items.data()), "read",
                path);
    return items;
  }

  std::vector<std::string> texts(const std::string& path) const {
    std::vector<char*> pointers(count(path));
    const hdf5::Dataset dataset = open_dataset(path);
    const hdf5::Datatype type = hdf5::utf8_string_type();
    hdf5::check(
        H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, static_cast<void*>(pointers.data())),
        "read", path);
    return take(pointers);
  }

  std::string text_attribute(const std::string& path, const std::string& name) const {
    const hdf5::Attribute attribute = open_attribute(path, name);
    const hdf5::Datatype type = hdf5::utf8_string_type();
    std::vector<char*> pointer(1);
    hdf5::check(H5Aread(attribute.get(), type.get(), static_cast<void*>(pointer.data())), "read", name);
    return take(pointer).front();
  }

  double number_attribute(const std::string& path, const std::string& name) const {
    double number = 0;
    const hdf5::Attribute attribute = open_attribute(path, name);
    hdf5::check(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &number), "read", name);
    return number;
  }

 private:
  hdf5::Dataset open_dataset(const std::string& path) const {
    return hdf5::Dataset(
        hdf5::check(H5Dopen2(m_file.get(), path.c_str(), H5P_DEFAULT), "open", path, m_file.get()));
  }

  hdf5::Attribute open_attribute(const std::string& path, const std::string& name) const {
    return hdf5::Attribute(hdf5::check(
        H5Aopen_by_name(m_file.get(), path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), "open", name));
  }

  std::size_t count(const std::string& path) const {
    std::size_t count = 1;
    for (const auto extent : extents(path)) count *= extent;
    return count;
  }

  static std::vector<std::string> take(const std::vector<char*>& pointers) {
    std::vector<std::string> texts;
    for (char* pointer : pointers) {
      texts.emplace_back(pointer == nullptr ? "" : pointer);
      H5free_memory(pointer);
    }
    return texts;
  }

  hdf5::QuietErrors m_quiet;
  hdf5::File m_file;
};

}  // namespace kformer::Testing
