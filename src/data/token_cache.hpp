// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "data/token_shard.hpp"

namespace kformer::Impl::data {

/// Tokenised files in a folder, one file for each key. Files are written under other names and renamed, so any
/// number of processes may share the folder. A file that is damaged is made anew.
class TokenCache {
 public:
  /// \param folder made when it is first written to; empty: nothing is kept
  explicit TokenCache(std::filesystem::path folder) : m_folder(std::move(folder)) {}

  /// What `get` found.
  struct Found {
    TokenShard shard;
    bool cached = false;     ///< the tokens were there
    std::string not_stored;  ///< why they could not be stored, or empty
  };

  /// The documents under `key`.
  /// \param source in error texts
  /// \param make   makes them, if the cache does not have them
  Found get(const ContentHash& key, const std::string& source,
            const std::function<TokenDocuments()>& make) const;

 private:
  std::filesystem::path path_of(const ContentHash& key) const { return m_folder / (key.text() + ".tokens"); }

  std::filesystem::path m_folder;
};

/// Documents that no cache keeps.
TokenShard shard_in_memory(const TokenDocuments& documents, const std::string& source);

}  // namespace kformer::Impl::data
