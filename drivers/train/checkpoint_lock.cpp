// SPDX-License-Identifier: MIT
#include "train/checkpoint_lock.hpp"

#include <system_error>

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

// One name for one folder, whatever the deck calls it.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  if (error) whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

CheckpointLock::CheckpointLock(const fs::path& folder) {
  const fs::path path = resolved(folder);
  std::error_code ignored;  // a folder that cannot be made is an error when its first file is written
  for (fs::path above = path.parent_path(); !fs::exists(above, ignored) && above.has_filename();
       above = above.parent_path())
    m_made.push_back(above);
  fs::create_directories(path.parent_path(), ignored);
  m_lock.emplace(path);
}

CheckpointLock::~CheckpointLock() {
  m_lock.reset();
  std::error_code ignored;  // those that have files stay
  for (const fs::path& folder : m_made) fs::remove(folder, ignored);
}

}  // namespace kformer::drivers
