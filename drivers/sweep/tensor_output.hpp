// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "measure/host_array.hpp"

namespace kformer::drivers {

/// The metadata of a file of results.
struct TensorLabel {
  std::string execution_space, dtype, impl, program;
};

/// Files of results. Those of the first combination of space, dtype and impl go to the file the deck names;
/// those of every further one to a file whose name says what differs. Results of backward hold those of forward
/// too, so more tensors replace fewer.
class TensorOutput {
 public:
  /// An empty path: nothing is written.
  explicit TensorOutput(std::filesystem::path file) : m_file(std::move(file)) {}

  /// Whether anything is written.
  bool wanted() const { return !m_file.empty(); }
  /// Call it before any work.
  /// \param input   what must not be replaced
  /// \param results the result file
  /// \param replace whether tensors of an earlier run may be
  /// \throws FileError if the file is one of these, exists and is not to be replaced, or can have no such name
  void require_place(const std::filesystem::path& input, const std::filesystem::path& results,
                     bool replace) const;
  /// Writes results as F32, those of f64 as F64.
  void write(const TensorLabel& label, const measure::HostArrays& results);
  /// An interrupted run has written the results of such a case, if it wrote any.
  void resume(const TensorLabel& label);
  /// Prints which files were written.
  void report(std::FILE* log) const;

 private:
  std::filesystem::path file_of(const TensorLabel& label);

  std::filesystem::path m_file;
  std::string m_first;
  std::map<std::filesystem::path, std::size_t> m_written;
};

}  // namespace kformer::drivers
