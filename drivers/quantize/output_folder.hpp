// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "kformer/io/checkpoint.hpp"
#include "output/staged_folder.hpp"

namespace kformer::drivers {

/// The folder of a packed checkpoint, which receives its files together, when all are written. `config.json`, without
/// which a folder is not a checkpoint, is removed first and added last, so that an incomplete folder never looks like a
/// checkpoint. What was not installed is removed at the end.
class OutputFolder {
 public:
  /// Checks that `path` is usable; creates nothing.
  /// \param overwrite whether an existing checkpoint may be replaced; other files than those of a packed
  ///                  checkpoint stay in any case
  /// \throws FileError naming the path and the reason
  OutputFolder(const std::filesystem::path& path, const std::filesystem::path& input, const Checkpoint& source,
               bool overwrite);

  /// Creates the folder, and the folder inside it to which the files are written. Keeps other runs out until the end.
  /// \throws FileError if that is impossible, or another run writes there
  void make();
  /// Where the files are to be written.
  std::filesystem::path staging() const { return m_folder.staging(); }
  /// Moves the files to their final place.
  /// \throws FileError if that is impossible
  void install();

 private:
  StagedFolder m_folder;
};

}  // namespace kformer::drivers
