// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "data/token_cache.hpp"
#include "data/token_shard.hpp"

/// \file
/// Files that already hold tokens.

namespace kformer::Impl::data {

/// The tokens of a `.npy` file, one document, or of the dataset `tokens` of an HDF5 file, with the documents
/// that its dataset `offsets` names. Tokens are mapped where they lie in the file as they are; others, such as
/// compressed ones, are unpacked into the cache.
/// \throws FileError naming the file and what was expected
TokenCache::Found open_token_file(const std::filesystem::path& path, const TokenCache& cache);

TokenShard open_npy(const std::filesystem::path& path);
TokenCache::Found open_hdf5_tokens(const std::filesystem::path& path, const TokenCache& cache);

}  // namespace kformer::Impl::data
