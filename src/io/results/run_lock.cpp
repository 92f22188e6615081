// SPDX-License-Identifier: MIT
#include "io/results/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

/// Whether the path still names the open file: the run before may have removed it meanwhile.
bool names(const std::filesystem::path& path, int descriptor) {
  struct stat open{}, named{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& path) : m_lock(path.string() + ".lock") {
  constexpr mode_t read_write_by_umask = 0666;
  for (;;) {
    m_descriptor =
        ::open(m_lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, read_write_by_umask);
    if (m_descriptor < 0 && errno != EISDIR && errno != ELOOP && errno != ENXIO) return;
    struct stat status{};
    if (m_descriptor < 0 || (::fstat(m_descriptor, &status) == 0 && !S_ISREG(status.st_mode))) {
      if (m_descriptor >= 0) ::close(m_descriptor);
      m_descriptor = -1;
      throw FileError("'" + m_lock.string() + "' is not a regular file, and cannot lock '" + path.string() +
                      "'; remove it, or choose another name");
    }
    if (::flock(m_descriptor, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      ::close(m_descriptor);
      m_descriptor = -1;
      if (reason != EWOULDBLOCK) return;
      throw FileError("'" + path.string() +
                      "' is being written by another run; wait until it ends, or choose another name");
    }
    if (names(m_lock, m_descriptor)) return;
    ::close(m_descriptor);
  }
}

RunLock::~RunLock() {
  if (m_descriptor < 0) return;
  ::unlink(m_lock.c_str());
  ::close(m_descriptor);
}

}  // namespace kformer::Impl
