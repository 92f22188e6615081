// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace kformer::Impl {

/// Writes the concatenation of `pieces` to `path`, atomically.
///
/// The bytes go to a new file beside `path` that ends in ".tmp", are synchronised with the disk and renamed over `path`: whoever opens
/// `path`, even after the process or the machine died half-way, finds either the complete previous file or the
/// complete new one.
/// \throws FileError naming the path and the system's reason; the previous file is then unchanged.
void replace_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);

/// Makes bytes when they are needed.
using ByteSource = std::function<std::span<const std::byte>()>;

/// The same for pieces that are not in memory at once: each is asked for when those before it have been written.
void replace_file(const std::filesystem::path& path, std::span<const ByteSource> pieces);

/// Deletes what calls of `replace_file` left half-written in a folder when their process was killed. Only for the files
/// of a run that keeps other writers of these files out.
/// \param folder where they are; it may be absent
/// \param ours   whether a name is one of the files that the run writes
void remove_half_written(const std::filesystem::path& folder,
                         const std::function<bool(const std::string& name)>& ours);

}  // namespace kformer::Impl
