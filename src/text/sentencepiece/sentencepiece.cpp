// SPDX-License-Identifier: MIT
#include "text/base/file.hpp"
#include "text/tokenizer/formats.hpp"

#ifdef KFORMER_ENABLE_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "io/content_hash.hpp"
#include "io/utf8.hpp"
#include "text/base/byte_names.hpp"
#include "text/base/limits.hpp"
#include "text/hf/configs.hpp"
#include "text/sentencepiece/check_model.hpp"
#include "text/steps/added_tokens.hpp"
#include "text/steps/spelled_spaces.hpp"

namespace kformer::Impl::tokenizers {
namespace {

using sentencepiece::SentencePieceProcessor;

/// A SentencePiece model, run by the SentencePiece library.
class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& path) : m_file(path.string()) {
    const std::string contents = read_whole(path);
    check_sentencepiece_model(contents, m_file);
    if (const auto status = m_model.LoadFromSerializedProto(contents); !status.ok())
      refuse(m_file, status.ToString());
    m_fingerprint = hash_of(contents).text();
    if (m_model.GetPieceSize() == 0) refuse(m_file, "it has no pieces");
    for (int id = 0; id < m_model.GetPieceSize(); ++id)
      if (m_model.IsControl(id)) m_special.add({m_model.IdToPiece(id), id, true}, m_file);
    m_drops_first_space = drops_first_space();
    read_ends(read_configs(path.parent_path()));
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    require_encodable(text);
    std::vector<int> ids;
    if (const auto status = m_model.Encode(repair_utf8(text), &ids); !status.ok())
      refuse(m_file, status.ToString());
    return {ids.begin(), ids.end()};
  }

  std::vector<std::int32_t> encode_with_special(std::string_view text) const override {
    return encode_segments(m_special.split(text, true));
  }

  std::vector<std::int32_t> encode_chat(std::span<const ChatPiece> pieces) const override {
    return encode_parts(pieces, [&](const MarkedText& part) {
      return encode_segments(m_special.split(part.text, part.plain));
    });
  }
  std::string token_bytes(std::int32_t id, bool at_start) const override {
    if (!has(id) || m_model.IsControl(id)) return {};
    if (m_model.IsUnknown(id)) return " \xE2\x81\x87 ";  // what SentencePiece shows for it
    std::string_view piece = m_model.IdToPiece(id);
    if (const auto byte = m_model.IsByte(id) ? named_byte(piece) : std::nullopt)
      return {static_cast<char>(*byte)};
    if (at_start && m_drops_first_space && piece.starts_with(spelled_space))
      piece.remove_prefix(spelled_space.size());
    return with_spaces(piece, " ");
  }

  std::int64_t vocab_size() const override { return m_model.GetPieceSize(); }
  std::string piece(std::int32_t id) const override { return has(id) ? m_model.IdToPiece(id) : std::string(); }

  std::optional<std::int32_t> id_of(std::string_view piece) const override {
    // PieceToId returns the unknown token for strings that are not pieces.
    const int id = m_model.PieceToId(std::string(piece));
    if (!has(id) || m_model.IdToPiece(id) != piece) return {};
    return id;
  }

 private:
  std::vector<std::int32_t> encode_segments(const std::vector<Segment>& segments) const {
    std::vector<std::int32_t> ids;
    for (const Segment& segment : segments) {
      if (const auto* id = std::get_if<std::int32_t>(&segment)) {
        ids.push_back(*id);
        continue;
      }
      const auto more = encode(std::get<std::string_view>(segment));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  }

  /// Whether a piece that spells a space first loses it at the beginning of a text. Any such piece shows it.
  bool drops_first_space() const {
    for (int id = 0; id < m_model.GetPieceSize(); ++id) {
      const std::string& piece = m_model.IdToPiece(id);
      if (m_model.IsControl(id) || m_model.IsUnknown(id) || !piece.starts_with(spelled_space)) continue;
      std::string text;
      return m_model.Decode(std::vector<int>{id}, &text).ok() && text != with_spaces(piece, " ");
    }
    return false;
  }

  bool has(std::int32_t id) const { return id >= 0 && id < m_model.GetPieceSize(); }

  void read_ends(const TokenizerConfigs& configs) {
    if (has(m_model.bos_id())) m_bos = m_model.bos_id();
    m_adds_bos = m_bos && configs.adds_bos.value_or(true);
    add_eos(m_model.eos_id());
    if (configs.eos) add_eos(id_of(*configs.eos).value_or(-1));
    for (const std::int64_t id : configs.eos_ids)
      if (id < m_model.GetPieceSize()) add_eos(static_cast<std::int32_t>(id));
    m_chat_template = configs.chat_template;
  }

  void add_eos(std::int32_t id) {
    if (has(id) && std::find(m_eos.begin(), m_eos.end(), id) == m_eos.end()) m_eos.push_back(id);
  }

  std::string m_file;
  SentencePieceProcessor m_model;
  AddedTokens m_special;
  bool m_drops_first_space = false;
};

}  // namespace

std::unique_ptr<const Tokenizer> open_sentencepiece(const std::filesystem::path& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace kformer::Impl::tokenizers

#else

namespace kformer::Impl::tokenizers {

std::unique_ptr<const Tokenizer> open_sentencepiece(const std::filesystem::path& path) {
  unsupported(path.string(), "the format sentencepiece",
              "this build has no SentencePiece; install its development files (Debian: libsentencepiece-dev) "
              "and build with -DKformer_ENABLE_SENTENCEPIECE=ON");
}

}  // namespace kformer::Impl::tokenizers

#endif
