// SPDX-License-Identifier: MIT
#include "io/mapped_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

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

void release_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped.data());
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + mapped.size()) / page * page;
  // A failure costs memory alone.
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace kformer::Impl
