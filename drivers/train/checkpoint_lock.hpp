// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "io/results/run_lock.hpp"

namespace kformer::drivers {

/// Keeps other runs out of the folder of the checkpoints: they would delete each other's files. The folder need not
/// exist; folders above it are made for the lock, and removed at the end if nothing else is in them.
class CheckpointLock {
 public:
  /// \throws FileError if another run holds it
  explicit CheckpointLock(const std::filesystem::path& folder);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

 private:
  std::vector<std::filesystem::path> m_made;  // the inner ones first
  std::optional<Impl::RunLock> m_lock;
};

}  // namespace kformer::drivers
