// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "kformer/io/checkpoint.hpp"

namespace kformer::drivers {

/// The folder of a packed checkpoint, which gets its files together, when all are written: until then they lie
/// in a folder inside of it. `config.json`, without which nothing is a checkpoint, goes first and comes last,
/// so that no folder is taken for a checkpoint that is part of one.
class OutputFolder {
 public:
  /// Checks that `path` can be the place; makes nothing.
  /// \param overwrite whether a checkpoint that is there may be replaced; files that are not of a packed
  ///                  checkpoint stay in any case
  /// \throws FileError naming the path and the reason
  OutputFolder(std::filesystem::path path, const std::filesystem::path& input, const Checkpoint& source,
               bool overwrite);
  /// Removes what was not installed.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;             ///< a place is taken once
  OutputFolder& operator=(const OutputFolder&) = delete;  ///< a place is taken once

  /// Makes the folder, and the one inside of it that the files are to be written to.
  /// \throws FileError if that is not possible
  void make();
  /// Where the files are to be written.
  std::filesystem::path staging() const;
  /// Puts the files into their place.
  /// \throws FileError if that is not possible
  void install();

 private:
  std::filesystem::path m_path;
  bool m_made = false;
};

}  // namespace kformer::drivers
