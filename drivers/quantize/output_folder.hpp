// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <optional>

#include "io/results/run_lock.hpp"
#include "kformer/io/checkpoint.hpp"

namespace kformer::drivers {

/// The folder of a packed checkpoint, which receives its files together, when all are written: until then they
/// are in a folder inside it. `config.json`, without which a folder is not a checkpoint, is removed first and
/// added last, so that an incomplete folder never looks like a checkpoint.
class OutputFolder {
 public:
  /// Checks that `path` is usable; creates nothing.
  /// \param overwrite whether an existing checkpoint may be replaced; other files than those of a packed
  ///                  checkpoint stay in any case
  /// \throws FileError naming the path and the reason
  OutputFolder(std::filesystem::path path, const std::filesystem::path& input, const Checkpoint& source,
               bool overwrite);
  /// Removes what was not installed.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;             ///< not copyable
  OutputFolder& operator=(const OutputFolder&) = delete;  ///< not copyable

  /// Creates the folder, and the folder inside it to which the files are written. Keeps other runs out until the end.
  /// \throws FileError if that is impossible, or another run writes there
  void make();
  /// Where the files are to be written.
  std::filesystem::path staging() const;
  /// Moves the files to their final place.
  /// \throws FileError if that is impossible
  void install();

 private:
  std::filesystem::path m_path;
  bool m_made = false;
  std::optional<Impl::RunLock> m_lock;
};

}  // namespace kformer::drivers
