// SPDX-License-Identifier: MIT
#include "io/results/existing_file.hpp"

#include <hdf5.h>

#include <system_error>

#include "kformer/core/error.hpp"
#include "kformer/io/hdf5.hpp"

namespace kformer::Impl {

ExistingFile existing_file(const std::filesystem::path& path) {
  std::error_code reason;
  const auto status = std::filesystem::symlink_status(path, reason);
  if (status.type() == std::filesystem::file_type::not_found) return ExistingFile::none;
  if (status.type() == std::filesystem::file_type::none)
    throw FileError("cannot write '" + path.string() + "': " + reason.message());
  // Opening a pipe would wait for its writer.
  if (!std::filesystem::is_regular_file(path, reason)) return ExistingFile::foreign;
  const hdf5::QuietErrors quiet;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) return ExistingFile::foreign;
  const bool ours = H5Aexists(file, "schema_version") > 0;
  const bool cases = H5Lexists(file, "cases", H5P_DEFAULT) > 0;
  H5Fclose(file);
  return !ours ? ExistingFile::foreign : cases ? ExistingFile::with_cases : ExistingFile::without_cases;
}

}  // namespace kformer::Impl
