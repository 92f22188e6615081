// SPDX-License-Identifier: MIT
#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

[[noreturn]] void fail_to_open(const std::filesystem::path& path, int reason) {
  throw FileError("cannot read '" + path.string() + "': " + std::generic_category().message(reason));
}

}  // namespace

MappedFile map_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_to_open(path, errno);
  struct stat status{};
  int reason = ::fstat(fd, &status) == 0 ? 0 : errno;
  if (reason == 0 && !S_ISREG(status.st_mode)) reason = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* start = nullptr;
  if (reason == 0 && size > 0) {
    start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (start == MAP_FAILED) reason = errno;
  }
  ::close(fd);
  if (reason != 0) fail_to_open(path, reason);
  const auto unmap = [size](const std::byte* mapped) {
    if (mapped != nullptr) ::munmap(const_cast<std::byte*>(mapped), size);
  };
  return {{static_cast<const std::byte*>(start), unmap}, size};
}

}  // namespace kformer::Impl
