// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace kformer::Impl {

/// Writes the concatenation of `pieces` to `path`, atomically.
///
/// The bytes go to a new file beside `path` that ends in ".tmp", are synchronised with the disk and renamed over `path`: whoever opens
/// `path`, even after the process or the machine died half-way, finds either the complete previous file or the
/// complete new one.
/// \throws FileError naming the path and the system's reason; the previous file is then unchanged.
void replace_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);

}  // namespace kformer::Impl
