// SPDX-License-Identifier: MIT
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "data/token_cache.hpp"
#include "data/token_store.hpp"
#include "fuzz/dataset.hpp"
#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Testing {

namespace {

namespace data = Impl::data;

void read_npy(std::string_view bytes) {
  static InputFolder folder("tokens.npy");
  read_dataset(DataFormat::tokens, folder.put(bytes));
}

void read_chat(std::string_view bytes) {
  static InputFolder folder("chat.jsonl");
  read_dataset(DataFormat::chat, folder.put(bytes));
}

void read_text(std::string_view bytes) {
  static InputFolder folder("text.txt");
  read_dataset(DataFormat::text, folder.put(bytes));
}

// A file of the cache, with the checksum of what it says: without it nothing behind the header would be read.
void read_cached(std::string_view bytes) {
  constexpr std::size_t checksum = 24, summed = 40;  // where a file has its checksum, and what it is of
  static const Impl::ContentHash key;
  static const InputFolder folder(key.text() + ".tokens");
  std::string file(bytes);
  if (file.size() >= summed) {
    const auto hash = Impl::hash_of(std::string_view(file).substr(summed));
    std::memcpy(file.data() + checksum, &hash, sizeof hash);
  }
  folder.put(file);
  const auto refuse = []() -> data::TokenDocuments { throw FileError("the file would be made anew"); };
  const auto found = data::TokenCache(folder.folder()).get(key, "input", refuse);
  check_ids(found.shard, 0);
  data::TokenStore store;
  store.add(found.shard);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(store.size()));
  store.ids(0, ids);
  store.targets(0, ids);
  store.learnt(0, store.size());
}

}  // namespace

std::span<const FuzzTarget> data_targets() {
  static constexpr std::array<FuzzTarget, 4> targets{
      {{"npy", read_npy}, {"chat_jsonl", read_chat}, {"text", read_text}, {"token_cache", read_cached}}};
  return targets;
}

}  // namespace kformer::Testing
