// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

namespace kformer::Impl {

/// Moves the files of `staging`, a whole checkpoint in the published layout, into `folder`, where they replace those of
/// an earlier one: its weights with their index and shards, and its tokenizer unless `keep_tokenizer`. Files that are
/// not a checkpoint's stay. `config.json`, without which a folder is not a checkpoint, is removed first and added last.
/// \throws std::filesystem::filesystem_error
void install_checkpoint(const std::filesystem::path& staging, const std::filesystem::path& folder,
                        bool keep_tokenizer = false);

}  // namespace kformer::Impl
