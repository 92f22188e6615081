// SPDX-License-Identifier: MIT
#include "text/sentencepiece/check_model.hpp"

#include <cstdint>
#include <cstring>
#include <limits>

#include "text/base/file.hpp"

namespace kformer::Impl::tokenizers {
namespace {

/// Published pieces have up to some 200 bytes. The library walks along a piece by recursion.
constexpr std::size_t longest_piece = 4096;

enum WireType : unsigned { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

/// Reads the fields of a message in Protocol Buffers' wire format.
class Message {
 public:
  Message(std::string_view bytes, const std::string& file) : m_bytes(bytes), m_file(file) {}

  /// Calls `f(number, content)` for every delimited field, and skips the others.
  template <class F>
  void for_each_delimited(F f) {
    while (!m_bytes.empty()) {
      const std::uint64_t key = take_varint();
      // Readers differ in what they make of longer ones.
      if (key > std::numeric_limits<std::uint32_t>::max())
        refuse(m_file, "it is not a SentencePiece model: the number of a field has more than 32 bits");
      switch (key & 7) {
        case varint:
          take_varint();
          break;
        case fixed64:
          take(8);
          break;
        case delimited: {
          const std::string_view content = take(take_varint());
          f(key >> 3, content);
          break;
        }
        case fixed32:
          take(4);
          break;
        default:
          refuse(m_file, "it is not a SentencePiece model: a field of unknown type");
      }
    }
  }

 private:
  std::uint64_t take_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    refuse(m_file, "it is not a SentencePiece model: an unterminated number");
  }

  std::string_view take(std::uint64_t count) {
    if (count > m_bytes.size()) refuse(m_file, "it is not a SentencePiece model, or is truncated");
    const std::string_view taken = m_bytes.substr(0, count);
    m_bytes.remove_prefix(count);
    return taken;
  }

  std::string_view m_bytes;
  const std::string& m_file;
};

void check_piece(std::string_view piece, const std::string& file) {
  if (piece.size() > longest_piece)
    refuse(file, "the piece " + in_quotes(piece) + " has " + std::to_string(piece.size()) + " bytes, at most " +
                     std::to_string(longest_piece) + " are supported");
  if (piece.find('\0') != std::string_view::npos) refuse(file, "a piece contains a zero byte");
}

/// A `precompiled_charsmap`: the bytes of a tree in 32 bits, the tree, and texts that end with zeros.
///
/// The tree is a double array (Aoe, 1989) as Darts-clone stores it. From unit `i` a search goes to
/// `i ^ offset ^ byte`, and to the leaf at `i ^ offset`, whose value is the place of a text.
void check_charsmap(std::string_view map, const std::string& file) {
  const auto wrong = [&](const char* why) { refuse(file, std::string("its normalizer is damaged: ") + why); };
  const auto unit_at = [&](std::size_t i) {
    std::uint32_t unit = 0;
    std::memcpy(&unit, map.data() + 4 * i, 4);
    return unit;
  };
  if (map.empty()) return;
  if (map.size() < 4) wrong("it has no length");
  const std::size_t tree_bytes = unit_at(0);
  map.remove_prefix(4);
  if (tree_bytes == 0 || tree_bytes % 4 != 0 || tree_bytes >= map.size()) wrong("its length is wrong");
  if (map.back() != '\0') wrong("its last text has no end");
  const std::size_t units = tree_bytes / 4, texts = map.size() - tree_bytes;
  constexpr std::uint32_t leaf = 1U << 31, has_leaf = 1U << 8, far = 1U << 9, any_byte = 0xFF;
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint32_t unit = unit_at(i);
    // A search begins at unit 0, whatever it says that it is.
    if (i > 0 && (unit & leaf) != 0) continue;
    const std::size_t base = i ^ (std::size_t{unit >> 10} << ((unit & far) != 0 ? 8 : 0));
    if ((base | any_byte) >= units) wrong("its search tree points outside of itself");
    if ((unit & has_leaf) != 0 && (unit_at(base) & ~leaf) >= texts) wrong("a text lies outside of it");
  }
}

}  // namespace

void check_sentencepiece_model(std::string_view model, const std::string& file) {
  enum ModelField { pieces = 1, normalizer = 3, denormalizer = 5 };
  constexpr std::uint64_t text_of_piece = 1, charsmap = 2;
  Message(model, file).for_each_delimited([&](std::uint64_t field, std::string_view content) {
    if (field == pieces)
      Message(content, file).for_each_delimited([&](std::uint64_t inner, std::string_view text) {
        if (inner == text_of_piece) check_piece(text, file);
      });
    if (field == normalizer || field == denormalizer)
      Message(content, file).for_each_delimited([&](std::uint64_t inner, std::string_view map) {
        if (inner == charsmap) check_charsmap(map, file);
      });
  });
}

}  // namespace kformer::Impl::tokenizers
