// SPDX-License-Identifier: MIT
#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

constexpr mode_t read_write_by_umask = 0666;

class Descriptor {
 public:
  explicit Descriptor(int fd) : m_fd(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int get() const { return m_fd; }

  /// Closing can be the first to report a full disk (NFS), so its result counts.
  bool close() {
    const int fd = m_fd;
    m_fd = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int m_fd;
};

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

constexpr std::string_view temporary_suffix = ".tmp";

/// Nobody else writes to this name, and a link that somebody put there is not followed.
std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  return path.string() + "." + std::to_string(std::random_device()()) + std::string(temporary_suffix);
}

/// The name that a temporary file was to get; empty for other files.
std::string final_name(std::string name) {
  if (!name.ends_with(temporary_suffix)) return {};
  name.resize(name.size() - temporary_suffix.size());
  const std::size_t point = name.find_last_not_of("0123456789");
  if (point == std::string::npos || name[point] != '.' || point + 1 == name.size()) return {};
  return name.substr(0, point);
}

bool write_and_sync(const std::filesystem::path& path, std::span<const ByteSource> pieces) {
  Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, read_write_by_umask));
  if (file.get() < 0) return false;
  for (const ByteSource& piece : pieces) {
    if (!write_all(file.get(), piece())) return false;
  }
  return ::fsync(file.get()) == 0 && file.close();
}

bool write_and_rename(const std::filesystem::path& temporary, const std::filesystem::path& path,
                      std::span<const ByteSource> pieces) {
  try {
    return write_and_sync(temporary, pieces) && std::rename(temporary.c_str(), path.c_str()) == 0;
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

/// Makes the rename itself survive a power cut. Not every file system supports this for a directory, and the
/// file is already complete, so a refusal is not an error.
void sync_directory(const std::filesystem::path& directory) {
  const Descriptor descriptor(
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() >= 0) ::fsync(descriptor.get());
}

}  // namespace

void replace_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces) {
  std::vector<ByteSource> sources;
  for (const auto piece : pieces) sources.emplace_back([piece] { return piece; });
  replace_file(path, sources);
}

void replace_file(const std::filesystem::path& path, std::span<const ByteSource> pieces) {
  const std::filesystem::path temporary = temporary_beside(path);
  if (!write_and_rename(temporary, path, pieces)) {
    const int reason = errno;
    if (reason != EEXIST) ::unlink(temporary.c_str());
    throw FileError("cannot write '" + path.string() + "': " + std::generic_category().message(reason) +
                    (::access(path.c_str(), F_OK) == 0 ? "; the existing file is unchanged" : ""));
  }
  sync_directory(path.parent_path());
}

void remove_half_written(const std::filesystem::path& folder,
                         const std::function<bool(const std::string& name)>& ours) {
  std::error_code ignored;  // the folder may be absent, and a file that stays does no harm
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = final_name(entry.path().filename().string());
    if (!name.empty() && ours(name)) found.push_back(entry.path());
  }
  for (const std::filesystem::path& path : found) std::filesystem::remove(path, ignored);
}

}  // namespace kformer::Impl
