// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

namespace kformer::Impl {

/// Keeps two runs from writing one file or folder: a lock on `path` + ".lock", which the end of the process
/// releases however it ends. A file that a killed run left there does not matter. Where nothing can be locked
/// there is no lock.
class RunLock {
 public:
  /// \throws FileError if another run holds the lock
  explicit RunLock(const std::filesystem::path& path);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::filesystem::path m_lock;
  int m_descriptor = -1;
};

}  // namespace kformer::Impl
