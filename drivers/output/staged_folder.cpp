// SPDX-License-Identifier: MIT
#include "output/staged_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "kformer/core/error.hpp"

namespace kformer::drivers {

namespace fs = std::filesystem;

fs::path resolved_folder(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  if (error) whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

StagedFolder::StagedFolder(std::string name, const fs::path& path, const std::string& program)
    : m_name(std::move(name)), m_staging("." + program + ".part"), m_path(resolved_folder(path)) {}

void StagedFolder::refuse(const std::string& reason) const {
  throw FileError(fmt::format("{} '{}' {}", m_name, m_path.string(), reason));
}

void StagedFolder::with_errors(const std::function<void()>& f) const {
  try {
    f();
  } catch (const fs::filesystem_error& error) {
    refuse("cannot be written: " + error.code().message());
  }
}

void StagedFolder::require_usable(bool replace, const std::string& advice) const {
  with_errors([&] {
    if (!fs::exists(m_path)) return;
    if (!fs::is_directory(m_path)) refuse("is not a folder");
    const auto is_ours = [&](const fs::directory_entry& entry) { return entry.path().filename() == m_staging; };
    if (!replace && !std::ranges::all_of(fs::directory_iterator(m_path), is_ours))
      refuse("exists and is not empty; " + advice);
  });
}

void StagedFolder::claim() {
  std::error_code ignored;  // a folder that cannot be made is an error of make()
  fs::create_directories(m_path.parent_path(), ignored);
  m_claim = std::make_unique<Claim>(*this);
}

void StagedFolder::make() const {
  with_errors([&] {
    m_claim->made |= fs::create_directories(m_path);
    fs::remove_all(staging());
    fs::create_directory(staging());
  });
}

void StagedFolder::drop() const { m_claim->drop(); }

void StagedFolder::fill(const std::function<void()>& write) const {
  make();
  with_errors(write);
  drop();
}

void StagedFolder::Claim::drop() {
  std::error_code ignored;
  fs::remove_all(staging, ignored);
  if (made) fs::remove(path, ignored);  // does nothing to a folder with files
}

}  // namespace kformer::drivers
