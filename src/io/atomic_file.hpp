// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace kformer::Impl {

/// Puts the concatenation of `pieces` at `path`, all or nothing.
///
/// The bytes go to `path` + ".tmp", are synchronised with the disk and renamed over `path`: whoever opens
/// `path`, even after the process or the machine died half-way, finds either the previous file whole or the new
/// one whole.
/// \throws FileError naming the path and the system's reason; the previous file is then unchanged.
void replace_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);

}  // namespace kformer::Impl
