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

}  // namespace kformer::Impl
