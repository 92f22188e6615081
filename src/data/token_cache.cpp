// SPDX-License-Identifier: MIT
#include "data/token_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "io/atomic_file.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::data {
namespace {

/// A cached file begins with this; then come the offsets, the tokens and, if there are any, the marks `learnt`.
struct Header {
  std::array<char, 8> magic{'K', 'F', 'T', 'O', 'K', 'E', 'N', '1'};
  ContentHash key;
  ContentHash content;  ///< of all that follows it
  std::int64_t documents = 0, tokens = 0, malformed = 0, marks = 0;
};
static_assert(sizeof(Header) == 72);
constexpr std::size_t hashed_from = offsetof(Header, documents);

using Image = std::vector<std::byte>;

template <class T>
void append(Image& image, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  image.insert(image.end(), bytes.begin(), bytes.end());
}

std::int64_t count_of(const auto& values) { return static_cast<std::int64_t>(values.size()); }

Image image_of(const TokenDocuments& documents, const ContentHash& key) {
  Header header;
  header.key = key;
  header.documents = count_of(documents.offsets) - 1;
  header.tokens = count_of(documents.tokens);
  header.malformed = documents.malformed;
  header.marks = count_of(documents.learnt);
  Image image(sizeof(Header));
  image.reserve(sizeof(Header) + 8 * documents.offsets.size() + 4 * documents.tokens.size() +
                documents.learnt.size());
  append(image, documents.offsets);
  append(image, documents.tokens);
  append(image, documents.learnt);
  std::memcpy(image.data(), &header, sizeof header);
  header.content = hash_of(std::span(image).subspan(hashed_from));
  std::memcpy(image.data(), &header, sizeof header);
  return image;
}

/// The header, if it belongs to `size` bytes.
std::optional<Header> header_of(std::span<const std::byte> bytes, const ContentHash& key) {
  if (bytes.size() < sizeof(Header)) return {};
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto fits = [&](std::int64_t count) { return count >= 0 && count <= size; };
  if (header.magic != Header().magic || header.key != key) return {};
  if (!fits(header.documents) || !fits(header.tokens) || !fits(header.marks)) return {};
  const std::int64_t expected =
      static_cast<std::int64_t>(sizeof(Header)) + 8 * (header.documents + 1) + 4 * header.tokens + header.marks;
  return size == expected ? std::optional(header) : std::nullopt;
}

/// Whether documents and marks are those of the tokens. The checksum does not say so: anyone can compute it.
bool fits_together(const TokenShard& shard, std::int64_t tokens) {
  return shard.offsets.front() == 0 && shard.offsets.back() == tokens &&
         std::ranges::is_sorted(shard.offsets) && (shard.learnt.empty() || count_of(shard.learnt) == tokens);
}

/// What an image contains; nothing if it is damaged.
std::optional<TokenShard> shard_of(std::span<const std::byte> image, std::shared_ptr<const void> memory,
                                   const ContentHash& key) {
  const auto header = header_of(image, key);
  if (!header || header->content != hash_of(image.subspan(hashed_from))) return {};
  TokenShard shard;
  const std::byte* at = image.data() + sizeof(Header);
  shard.offsets.resize(static_cast<std::size_t>(header->documents) + 1);
  std::memcpy(shard.offsets.data(), at, 8 * shard.offsets.size());
  shard.tokens = at + 8 * shard.offsets.size();
  const auto* marks = reinterpret_cast<const std::uint8_t*>(shard.tokens + 4 * header->tokens);
  shard.learnt = {marks, static_cast<std::size_t>(header->marks)};
  if (!fits_together(shard, header->tokens)) return {};
  shard.malformed = header->malformed;
  shard.content = header->content;
  shard.memory = std::move(memory);
  return shard;
}

std::optional<TokenShard> read_cached(const std::filesystem::path& path, const ContentHash& key) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  try {
    const MappedFile file = map_file(path);
    return shard_of(file.bytes(), file.start, key);
  } catch (const FileError&) {
    return {};
  }
}

/// Another process may write the same file, so each has a name of its own until the file is complete.
void store(const std::filesystem::path& path, const Image& image) {
  std::random_device random;
  const std::filesystem::path own = path.string() + fmt::format(".{:08x}{:08x}", random(), random());
  try {
    std::filesystem::create_directories(path.parent_path());
    const std::array<std::span<const std::byte>, 1> pieces{image};
    replace_file(own, pieces);
    std::filesystem::rename(own, path);
  } catch (const std::filesystem::filesystem_error& error) {
    std::error_code ignored;
    std::filesystem::remove(own, ignored);
    throw FileError(error.what());
  }
}

TokenShard shard_of(Image image, const ContentHash& key) {
  const auto kept = std::make_shared<const Image>(std::move(image));
  return *shard_of(*kept, kept, key);
}

}  // namespace

TokenCache::Found TokenCache::get(const ContentHash& key, const std::string& source,
                                  const std::function<TokenDocuments()>& make) const {
  Found found;
  const bool keeps = !m_folder.empty();
  auto cached = keeps ? read_cached(path_of(key), key) : std::nullopt;
  found.cached = cached.has_value();
  if (!cached) {
    Image image = image_of(make(), key);
    try {
      if (keeps) store(path_of(key), image);
    } catch (const FileError& error) {
      found.not_stored = error.what();
    }
    // Mapped, the tokens need not stay in memory.
    if (keeps && found.not_stored.empty()) cached = read_cached(path_of(key), key);
    if (!cached) cached = shard_of(std::move(image), key);
  }
  found.shard = std::move(*cached);
  found.shard.source = source;
  return found;
}

TokenShard shard_in_memory(const TokenDocuments& documents, const std::string& source) {
  TokenShard shard = shard_of(image_of(documents, {}), {});
  shard.source = source;
  return shard;
}

}  // namespace kformer::Impl::data
