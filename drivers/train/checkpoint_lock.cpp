// SPDX-License-Identifier: MIT
#include "train/checkpoint_lock.hpp"

#include <system_error>

#include "output/staged_folder.hpp"

namespace kformer::drivers {

namespace fs = std::filesystem;

CheckpointLock::CheckpointLock(const fs::path& folder) {
  const fs::path path = resolved_folder(folder);
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
