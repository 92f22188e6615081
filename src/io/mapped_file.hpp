// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace kformer::Impl {

/// A file's contents, mapped for reading as long as `start` or a copy of it exists.
struct MappedFile {
  std::shared_ptr<const std::byte> start;
  std::size_t size = 0;

  std::span<const std::byte> bytes() const { return {start.get(), size}; }
};

/// Maps the regular file at `path`.
/// \throws FileError "cannot read 'model.gguf': No such file or directory"
MappedFile map_file(const std::filesystem::path& path);

/// Takes the whole pages among these bytes of a mapped file out of the memory of the process. Their next access reads the
/// file again. Bytes of other memory would become zeros.
void release_pages(std::span<const std::byte> mapped);

}  // namespace kformer::Impl
