// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>

#include "io/checkpoint/contents.hpp"

namespace kformer::Impl {

/// Reads a folder with config.json, or a safetensors file or index beside config.json. The format of the result
/// is `packed` if it has quantised weights, else `safetensors`.
/// \throws FileError naming the file and the violated rule
std::shared_ptr<CheckpointContents> read_safetensors_checkpoint(const std::filesystem::path& path);

/// Reads a GGUF file.
/// \throws FileError naming the file and the violated rule
std::shared_ptr<CheckpointContents> read_gguf_checkpoint(const std::filesystem::path& path);

}  // namespace kformer::Impl
