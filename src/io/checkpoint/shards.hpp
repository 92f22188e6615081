// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace kformer::Impl {

/// The suffix of the name of an index file.
inline constexpr const char* index_suffix = ".safetensors.index.json";

/// The tensors of an index, each with the name of its shard: a file beside the index.
/// \throws FileError naming the index and the violated rule
std::map<std::string, std::string> read_shard_index(const std::filesystem::path& index);

}  // namespace kformer::Impl
