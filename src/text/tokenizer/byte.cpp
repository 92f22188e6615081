// SPDX-License-Identifier: MIT
#include "text/base/byte_names.hpp"
#include "text/tokenizer/formats.hpp"

namespace kformer::Impl::tokenizers {
namespace {

constexpr std::int32_t bytes = 256, bos_id = 256, eos_id = 257;

/// One token per byte, and two for the ends of a text.
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() {
    m_bos = bos_id;
    m_eos = {eos_id};
    m_adds_bos = true;
    m_fingerprint = "byte";
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  std::vector<std::int32_t> encode_with_special(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    while (!text.empty()) {
      const std::int32_t special = text.starts_with("<s>") ? bos_id : text.starts_with("</s>") ? eos_id : -1;
      ids.push_back(special < 0 ? static_cast<unsigned char>(text[0]) : special);
      text.remove_prefix(special < 0 ? 1 : piece(special).size());
    }
    return ids;
  }

  std::vector<std::int32_t> encode_chat(std::span<const ChatPiece> pieces) const override {
    std::vector<std::int32_t> ids;
    for (const ChatPiece& piece : pieces) {
      const auto more = piece.control ? encode_with_special(piece.text) : encode(piece.text);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  }

  std::string token_bytes(std::int32_t id, bool) const override {
    return id >= 0 && id < bytes ? std::string(1, static_cast<char>(id)) : std::string();
  }

  std::int64_t vocab_size() const override { return eos_id + 1; }

  std::string piece(std::int32_t id) const override {
    if (id == bos_id) return "<s>";
    if (id == eos_id) return "</s>";
    return id >= 0 && id < bytes ? name_of_byte(static_cast<unsigned char>(id)) : std::string();
  }

  std::optional<std::int32_t> id_of(std::string_view piece) const override {
    if (piece == "<s>") return bos_id;
    if (piece == "</s>") return eos_id;
    return named_byte(piece);
  }
};

}  // namespace

std::unique_ptr<const Tokenizer> make_byte() { return std::make_unique<ByteTokenizer>(); }

}  // namespace kformer::Impl::tokenizers
