// SPDX-License-Identifier: MIT
#include "io/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "kformer/core/error.hpp"

namespace kformer::Impl {

RegularFile::RegularFile(std::filesystem::path path)
    : m_path(std::move(path)),
      // Without O_NONBLOCK opening a pipe would wait for its writer.
      m_descriptor(::open(m_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (m_descriptor < 0) fail(errno);
  struct stat status{};
  const int reason = ::fstat(m_descriptor, &status) == 0 ? 0 : errno;
  m_size = static_cast<std::size_t>(status.st_size);
  if (reason == 0 && S_ISREG(status.st_mode)) return;
  ::close(m_descriptor);
  if (reason != 0 || S_ISDIR(status.st_mode)) fail(reason != 0 ? reason : EISDIR);
  throw FileError("cannot read '" + m_path.string() + "': it is a pipe, a device or a socket, not a file");
}

RegularFile::~RegularFile() { ::close(m_descriptor); }

void RegularFile::fail(int reason) const {
  throw FileError("cannot read '" + m_path.string() + "': " + std::generic_category().message(reason));
}

}  // namespace kformer::Impl
