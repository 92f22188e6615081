// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "kformer/io/result_table.hpp"

namespace kformer {

/// Options of a ResultFile.
struct ResultFileOptions {
  bool overwrite = false;  ///< replace an existing result file, and the `.part` file of an unfinished run
  int compression = 4;     ///< deflate level 0 to 9 of the numeric columns
  bool resume =
      false;  ///< go on with the `.part` file of an unfinished run, if there is one with finished cases
  bool discard = false;  ///< nothing is written, locked or checked: of a run whose other ranks write it
};

/// Writer of a result file in HDF5 that opens group by group in xarray, pandas, h5py and the netCDF tools.
///
/// The contents live in memory; checkpoint() writes them whole to `NAME.h5.part` and renames it into place, and
/// finish() renames that to `NAME.h5`. A process killed at any moment therefore leaves a consistent `.part`
/// file with everything up to its last checkpoint, and an existing `NAME.h5` is replaced only by a finished
/// one. Two runs cannot write one file at the same time: the second is refused, with `overwrite` too, by a lock
/// on `NAME.h5.lock`. A `.part` file without a row in "cases" holds nothing and is replaced; one without any row is
/// removed when an exception ends the run.
class ResultFile {
 public:
  /// Starts the file and writes a first `.part`, so that an unwritable path is detected before any
  /// work.
  /// \throws FileError if `path` exists and `overwrite` is false, or a `.part` of it and both `overwrite` and `resume`
  ///         are, if one of them is not a result file, if another run writes it, or if it cannot be written
  explicit ResultFile(std::filesystem::path path, ResultFileOptions options = {});
  ~ResultFile();
  /// Moves the contents.
  ResultFile(ResultFile&& other) noexcept;
  /// Moves the contents.
  ResultFile& operator=(ResultFile&& other) noexcept;

  /// The root group. The file itself sets the attributes schema, schema_version, Conventions and complete.
  ResultGroup& root();

  /// The group at `path` ("provenance", "a/b"), made at the first call. The reference remains valid.
  /// \throws Error if the path is that of a table
  ResultGroup& group(const std::string& path);

  /// Makes the table at `path`; a table without rows is not written. The reference remains valid.
  /// \param path          such as "cases" or "memory/classes"
  /// \param row_dimension name of the dimension of the rows
  /// \param long_name     what a row is, one line
  /// \throws Error if there is a group or table at `path`
  Table& table(const std::string& path, const std::string& row_dimension, const std::string& long_name);

  /// Whether restore() takes rows of an unfinished run.
  bool resumes() const;

  /// An attribute or a text of the unfinished run; numbers in decimal. Empty if there is none.
  /// \param group such as "provenance"; "" is the root
  /// \param name  in the group
  std::string unfinished_text(const std::string& group, const std::string& name) const;

  /// Appends the rows of the unfinished run to the tables declared so far, and writes a checkpoint. Without such a run
  /// it does nothing.
  /// \throws FileError if its columns differ
  void restore();

  /// Writes everything so far to the `.part` file, atomically. Costs one write of the whole file.
  /// \throws FileError if it cannot be written; the previous `.part` is then unchanged
  void checkpoint();

  /// Sets `complete`, writes, and renames to the final name. No call may follow.
  /// \throws FileError if it cannot be written, or if the final name now exists and `overwrite` is false
  void finish();

  /// Everything that is declared so far as JSON, by which files are checked: groups, attributes, and columns with types,
  /// dimensions, units and descriptions.
  std::string schema() const;

  /// The final name.
  const std::filesystem::path& path() const;
  /// The name until finish().
  std::filesystem::path part_path() const;

 private:
  struct Contents;
  std::unique_ptr<Contents> m_contents;
};

/// Version of the HDF5 library that writes the files, such as "1.14.5".
std::string hdf5_version();

}  // namespace kformer
