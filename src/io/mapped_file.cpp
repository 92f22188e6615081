// SPDX-License-Identifier: MIT
#include "io/mapped_file.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "io/regular_file.hpp"

namespace kformer::Impl {

MappedFile map_file(const std::filesystem::path& path) {
  const RegularFile file(path);
  const std::size_t size = file.size();
  if (size == 0) return {};
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (start == MAP_FAILED) file.fail(errno);
  const auto unmap = [size](const std::byte* mapped) { ::munmap(const_cast<std::byte*>(mapped), size); };
  return {{static_cast<const std::byte*>(start), unmap}, size};
}

}  // namespace kformer::Impl
