// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace kformer::Impl::schema {

/// Bytes of a deck or a config.json; no hand-written file is longer.
constexpr std::size_t max_text_bytes = std::size_t{1} << 20;

/// The first `max_bytes` bytes of a file.
/// \throws FileError "cannot read 'x.toml': No such file or directory"
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace kformer::Impl::schema
