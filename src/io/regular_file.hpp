// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>

namespace kformer::Impl {

/// A regular file, open for reading. Anything else is refused: reading a pipe or a device may never end.
class RegularFile {
 public:
  /// \throws FileError "cannot read 'x.toml': No such file or directory"
  explicit RegularFile(std::filesystem::path path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int descriptor() const { return m_descriptor; }
  /// Bytes when it was opened.
  std::size_t size() const { return m_size; }
  /// \throws FileError with the system's reason
  [[noreturn]] void fail(int reason) const;

 private:
  std::filesystem::path m_path;
  int m_descriptor;
  std::size_t m_size = 0;
};

}  // namespace kformer::Impl
