// SPDX-License-Identifier: MIT
#include "quantize/output_folder.hpp"

#include <fmt/format.h>

#include "io/checkpoint/install.hpp"
#include "kformer/core/error.hpp"

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

constexpr const char* staging_name = ".kformer-quantize.part";

[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
  throw FileError(fmt::format("output '{}' {}", path.string(), reason));
}

// Remains of a killed run do not count.
bool holds_nothing(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != staging_name) return false;
  return true;
}

// "model/" and "model" have one name, and one lock.
fs::path without_slash(fs::path path) { return path.has_filename() ? path : path.parent_path(); }

void check(const fs::path& path, const fs::path& input, const Checkpoint& source, bool overwrite) {
  if (!fs::exists(path)) return;
  const fs::path folder = source.folder().empty() ? "." : source.folder();
  if (fs::equivalent(path, input) || fs::equivalent(path, folder))
    refuse(path, "is the folder of the input; name another folder");
  if (!fs::is_directory(path)) refuse(path, "is not a folder");
  if (!overwrite && !holds_nothing(path))
    refuse(path, "exists and is not empty; --overwrite replaces a checkpoint there");
}

template <class F>
void with_file_errors(const fs::path& path, F f) {
  try {
    f();
  } catch (const fs::filesystem_error& error) {
    refuse(path, "cannot be used: " + error.code().message());
  }
}

}  // namespace

OutputFolder::OutputFolder(fs::path path, const fs::path& input, const Checkpoint& source, bool overwrite)
    : m_path(without_slash(std::move(path))) {
  with_file_errors(m_path, [&] { check(m_path, input, source, overwrite); });
}

OutputFolder::~OutputFolder() {
  if (!m_lock) return;
  std::error_code ignored;
  fs::remove_all(staging(), ignored);
  if (m_made) fs::remove(m_path, ignored);  // does nothing to a folder with files
}

void OutputFolder::make() {
  with_file_errors(m_path, [&] {
    if (m_path.has_parent_path()) fs::create_directories(m_path.parent_path());
    m_lock.emplace(m_path);
    m_made = fs::create_directories(m_path);
    fs::remove_all(staging());
    fs::create_directory(staging());
  });
}

fs::path OutputFolder::staging() const { return m_path / staging_name; }

void OutputFolder::install() {
  with_file_errors(m_path, [&] { Impl::install_checkpoint(staging(), m_path); });
}

}  // namespace kformer::drivers
