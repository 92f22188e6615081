// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <regex>

#include "data/token_files.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::data {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t version_bytes = 2;

/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
class Npy {
 public:
  Npy(std::string source, std::span<const std::byte> bytes) : m_source(std::move(source)) {
    const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string_view header = header_of(file);
    m_type = type_of(value_of(header, "descr"));
    if (value_of(header, "fortran_order") != "True" && value_of(header, "fortran_order") != "False")
      refuse("its header has no fortran_order");
    m_count = count_of(value_of(header, "shape"));
    m_data_begin = static_cast<std::size_t>(header.data() + header.size() - file.data());
    const auto available = static_cast<std::int64_t>((file.size() - m_data_begin) / bytes_of(m_type));
    if (available < m_count)
      refuse(fmt::format("the header declares {} tokens, but the file has {}; it is truncated", m_count,
                         available));
  }

  TokenType type() const { return m_type; }
  std::int64_t count() const { return m_count; }
  std::size_t data_begin() const { return m_data_begin; }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError("'" + m_source + "' is not a .npy file of tokens: " + why);
  }

  std::string_view header_of(std::string_view file) const {
    if (!file.starts_with(magic) || file.size() < magic.size() + version_bytes)
      refuse("it does not start with the .npy signature");
    const auto major = static_cast<unsigned char>(file[magic.size()]);
    if (major < 1 || major > 3) refuse(fmt::format("its version is {}; expected 1, 2 or 3", major));
    file.remove_prefix(magic.size() + version_bytes);
    const std::size_t length_bytes = major == 1 ? 2 : 4;
    if (file.size() < length_bytes) refuse("its header is truncated");
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i)
      length |= static_cast<std::size_t>(static_cast<unsigned char>(file[i])) << (8 * i);
    if (file.size() - length_bytes < length) refuse("its header is truncated");
    return file.substr(length_bytes, length);
  }

  /// What follows `'key':` in the header, which is a dict of Python.
  std::string value_of(std::string_view header, const std::string& key) const {
    // A header is short; a file may pretend otherwise, and std::regex recurses.
    constexpr std::size_t longest = 4096;
    const std::string text(header.substr(0, longest));
    std::smatch match;
    const std::regex pattern("'" + key + "': *('[^']{0,20}'|True|False|\\([0-9, ]{0,80}\\)|\\[)");
    if (!std::regex_search(text, match, pattern)) refuse("its header has no " + key);
    return match[1];
  }

  TokenType type_of(const std::string& descr) const {
    if (descr == "'<u2'") return TokenType::uint16;
    if (descr == "'<u4'") return TokenType::uint32;
    if (descr == "'<i4'") return TokenType::int32;
    if (descr == "'<i8'") return TokenType::int64;
    refuse("its elements are " + descr +
           "; expected '<u2', '<u4', '<i4' or '<i8' (uint16, uint32, int32, int64)");
  }

  std::int64_t count_of(const std::string& shape) const {
    std::int64_t count = -1;
    const auto end = std::from_chars(shape.data() + 1, shape.data() + shape.size(), count).ptr;
    if (count < 0 || std::string_view(end) != ",)") refuse("its shape is " + shape + "; expected one extent");
    return count;
  }

  std::string m_source;
  TokenType m_type{};
  std::int64_t m_count = 0;
  std::size_t m_data_begin = 0;
};

}  // namespace

TokenShard open_npy(const std::filesystem::path& path) {
  const MappedFile file = map_file(path);
  const Npy npy(path.string(), file.bytes());
  TokenShard shard;
  shard.source = path.string();
  shard.memory = file.start;
  shard.tokens = file.start.get() + npy.data_begin();
  shard.type = npy.type();
  shard.offsets = {0, npy.count()};
  shard.content = content_of(shard);
  return shard;
}

}  // namespace kformer::Impl::data
