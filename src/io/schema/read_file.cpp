// SPDX-License-Identifier: MIT
#include "io/schema/read_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "kformer/core/error.hpp"

namespace kformer::Impl::schema {

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const auto fail = [&](int reason) {
    throw FileError("cannot read '" + path.string() + "': " + std::strerror(reason));
  };
  // Opening a directory succeeds, and reading it fails without a reason.
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) fail(EISDIR);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(errno);
  std::string text(max_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(max_bytes));
  if (file.bad()) fail(errno);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace kformer::Impl::schema
