// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "kformer/io/hdf5.hpp"
#include "kformer/io/result_table.hpp"

namespace kformer::Impl {

/// The result file of a run that did not come to its end. It stays readable when a new file takes its name.
class UnfinishedFile {
 public:
  /// \throws FileError if it cannot be opened
  explicit UnfinishedFile(const std::filesystem::path& path);

  /// The scalar attribute or text `name` of the group at `path`; numbers in decimal. Empty if there is none.
  /// \throws FileError if it cannot be what the file says
  std::string text(const std::string& path, const std::string& name) const;

  /// Appends the rows of the table at `path` to `table`, which declares the same columns. None if the file lacks it.
  /// \throws FileError if a column is missing, or differs from its declaration
  void append_rows(const std::string& path, Table& table) const;

 private:
  hdf5::Dataset open(hid_t group, const std::string& name) const;

  std::string m_name;
  std::uint64_t m_bytes;
  hdf5::File m_file;
};

}  // namespace kformer::Impl
