// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "data/token_files.hpp"
#include "io/hdf5_size.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/hdf5.hpp"

namespace kformer::Impl::data {
namespace {

using hdf5::check;

/// An HDF5 file with a dataset of tokens.
class TokenHdf5 {
 public:
  TokenHdf5(const std::filesystem::path& path, std::size_t file_bytes)
      : m_source(path.string()),
        m_file_bytes(file_bytes),
        m_file(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "read", m_source)),
        m_tokens(open("tokens")),
        m_count(length_of(m_tokens, "tokens")),
        m_offsets(read_offsets()) {}

  std::int64_t count() const { return m_count; }
  const std::vector<std::int64_t>& offsets() const { return m_offsets; }

  /// Where the tokens lie in the file, if they lie there as they are.
  struct Place {
    TokenType type;
    std::size_t begin;
  };
  std::optional<Place> place() const {
    const hdf5::PropertyList made(check(H5Dget_create_plist(m_tokens.get()), "read", "tokens"));
    const haddr_t begin = H5Dget_offset(m_tokens.get());
    const auto type = stored_type();
    if (H5Pget_layout(made.get()) != H5D_CONTIGUOUS || begin == HADDR_UNDEF || !type) return {};
    return Place{*type, static_cast<std::size_t>(begin)};
  }

  TokenDocuments read() const {
    const auto tokens = numbers(m_tokens, m_count, "tokens");
    TokenDocuments documents;
    documents.tokens.reserve(tokens.size());
    for (const std::int64_t token : tokens) {
      if (token < 0 || token > std::numeric_limits<std::int32_t>::max())
        refuse(fmt::format("tokens contains {}, which is not a token id", token));
      documents.tokens.push_back(static_cast<std::int32_t>(token));
    }
    documents.offsets = m_offsets;
    return documents;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError("'" + m_source + "' is not an HDF5 file of tokens: " + why);
  }

  hdf5::Dataset open(const char* name) const {
    return hdf5::Dataset(check(H5Dopen2(m_file.get(), name, H5P_DEFAULT), "open dataset", name, m_file.get()));
  }

  std::int64_t length_of(const hdf5::Dataset& dataset, const char* name) const {
    const hdf5::Dataspace space(check(H5Dget_space(dataset.get()), "read", name));
    const hdf5::Datatype type(check(H5Dget_type(dataset.get()), "read", name));
    if (H5Sget_simple_extent_ndims(space.get()) != 1) refuse(fmt::format("{} does not have one extent", name));
    if (H5Tget_class(type.get()) != H5T_INTEGER) refuse(fmt::format("{} are not integers", name));
    const std::size_t bytes = H5Tget_size(type.get());
    if (bytes > sizeof(std::int64_t)) refuse(fmt::format("{} are integers of {} bytes", name, bytes));
    if (const auto fault = false_size_of(dataset.get(), m_file_bytes))
      refuse(fmt::format("{} {}", name, *fault));
    return static_cast<std::int64_t>(H5Sget_simple_extent_npoints(space.get()));
  }

  std::vector<std::int64_t> numbers(const hdf5::Dataset& dataset, std::int64_t count, const char* name) const {
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    check(H5Dread(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "read", name,
          m_file.get());
    return values;
  }

  std::vector<std::int64_t> read_offsets() const {
    if (H5Lexists(m_file.get(), "offsets", H5P_DEFAULT) <= 0) return {0, m_count};
    const hdf5::Dataset dataset = open("offsets");
    auto offsets = numbers(dataset, length_of(dataset, "offsets"), "offsets");
    const bool good = !offsets.empty() && offsets.front() == 0 && offsets.back() == m_count &&
                      std::ranges::is_sorted(offsets);
    if (!good)
      refuse(
          fmt::format("offsets do not ascend from 0 to the number of tokens, {}; expected the first token of "
                      "each document, and the end",
                      m_count));
    return offsets;
  }

  std::optional<TokenType> stored_type() const {
    const hdf5::Datatype type(check(H5Dget_type(m_tokens.get()), "read", "tokens"));
    const auto is = [&](hid_t other) { return H5Tequal(type.get(), other) > 0; };
    if (is(H5T_STD_U16LE)) return TokenType::uint16;
    if (is(H5T_STD_U32LE)) return TokenType::uint32;
    if (is(H5T_STD_I32LE)) return TokenType::int32;
    if (is(H5T_STD_I64LE)) return TokenType::int64;
    return {};
  }

  std::string m_source;
  std::size_t m_file_bytes;
  hdf5::File m_file;
  hdf5::Dataset m_tokens;
  std::int64_t m_count;
  std::vector<std::int64_t> m_offsets;
};

}  // namespace

TokenCache::Found open_hdf5_tokens(const std::filesystem::path& path, const TokenCache& cache) {
  const MappedFile mapped = map_file(path);
  const hdf5::QuietErrors quiet;
  const TokenHdf5 file(path, mapped.size);
  const auto place = file.place();
  if (!place)
    return cache.get(hash_of("kformer unpacked tokens 1 " + hash_of(mapped.bytes()).text()), path.string(),
                     [&] { return file.read(); });
  TokenShard shard;
  shard.source = path.string();
  shard.memory = mapped.start;
  shard.tokens = mapped.start.get() + place->begin;
  shard.type = place->type;
  shard.offsets = file.offsets();
  if (place->begin > mapped.size || shard.token_bytes().size() > mapped.size - place->begin)
    throw FileError("'" + shard.source + "' is not an HDF5 file of tokens: it is truncated");
  shard.content = content_of(shard);
  return {std::move(shard)};
}

TokenCache::Found open_token_file(const std::filesystem::path& path, const TokenCache& cache) {
  if (path.extension() == ".npy") return {open_npy(path)};
  if (path.extension() == ".h5" || path.extension() == ".hdf5") return open_hdf5_tokens(path, cache);
  throw FileError("'" + path.string() + "' is not a file of tokens by its name; expected .npy, .h5 or .hdf5");
}

}  // namespace kformer::Impl::data
