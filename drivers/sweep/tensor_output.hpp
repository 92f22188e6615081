// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "measure/host_array.hpp"

namespace kformer::drivers {

/// The metadata of a file of results.
struct TensorLabel {
  std::string execution_space, dtype, impl, program;
  std::map<std::string, std::string> options{};  ///< other keys of which the sweep has several values
};

/// Files of results. Those of the first combination of space, dtype, impl and options go to the file the deck names;
/// those of every further one to a file whose name says what differs. Results of backward hold those of forward
/// too, so more tensors replace fewer.
class TensorOutput {
 public:
  /// \param file   what the deck names; empty: nothing is written
  /// \param labels of every case of the sweep, whether it can run or not, so that a resumed run has the same names
  TensorOutput(const std::filesystem::path& file, std::vector<TensorLabel> labels);

  /// Whether anything is written.
  bool wanted() const { return !m_files.empty(); }
  /// Call it before any work.
  /// \param input   what must not be replaced
  /// \param results the result file
  /// \param replace whether tensors of an earlier run may be
  /// \throws FileError if a file is one of these, exists and is not to be replaced, or can have no such name
  void require_place(const std::filesystem::path& input, const std::filesystem::path& results,
                     bool replace) const;
  /// Writes the results of a case as F32, those of f64 as F64.
  void write(std::size_t index, const measure::HostArrays& results);
  /// An interrupted run has written the results of such a case, if it wrote any.
  void resume(std::size_t index);
  /// Prints which files were written.
  void report(std::FILE* log) const;

 private:
  std::vector<TensorLabel> m_labels;           // of every case
  std::vector<std::filesystem::path> m_files;  // likewise; none if nothing is wanted
  std::map<std::filesystem::path, std::size_t> m_written;
};

}  // namespace kformer::drivers
