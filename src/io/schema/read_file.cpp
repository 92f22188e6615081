// SPDX-License-Identifier: MIT
#include "io/schema/read_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/regular_file.hpp"

namespace kformer::Impl::schema {

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const RegularFile file(path);
  std::string text(std::min(max_bytes, file.size()), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t taken = ::read(file.descriptor(), text.data() + done, text.size() - done);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) file.fail(errno);
    if (taken == 0) break;
    done += static_cast<std::size_t>(taken);
  }
  text.resize(done);
  return text;
}

}  // namespace kformer::Impl::schema
