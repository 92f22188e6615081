// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "kformer/io/result_table.hpp"

namespace kformer::Impl {

/// The contents of a result file by path; the root's path is "".
struct ResultContents {
  std::map<std::string, ResultGroup> groups;  ///< groups without a table
  std::map<std::string, Table> tables;        ///< written when they have rows
};

/// The bytes of an HDF5 file with these contents; the same contents give the same bytes.
///
/// HDF5 writes to memory only: a full disk then meets our own write, which can fail cleanly, and never a
/// half-closed HDF5 file.
/// \param file_name   for error texts
/// \param compression deflate level 0 to 9
/// \throws FileError with HDF5's reason
std::vector<std::byte> serialize(const ResultContents& contents, const std::string& file_name, int compression);

}  // namespace kformer::Impl
