// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace kformer::Impl::decks {

/// The first `max_bytes` bytes of a file.
/// \throws FileError "cannot read 'x.toml': No such file or directory"
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace kformer::Impl::decks
