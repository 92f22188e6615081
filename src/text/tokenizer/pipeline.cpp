// SPDX-License-Identifier: MIT
#include "text/tokenizer/pipeline.hpp"

#include <algorithm>
#include <utility>

#include "io/utf8.hpp"
#include "text/base/byte_names.hpp"
#include "text/base/limits.hpp"
#include "text/steps/spelled_spaces.hpp"

namespace kformer::Impl::tokenizers {
namespace {

bool is_marked(const std::vector<bool>& marks, std::int32_t id) {
  return id >= 0 && static_cast<std::size_t>(id) < marks.size() && marks[static_cast<std::size_t>(id)];
}

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline) : m_parts(std::move(pipeline)) {
    m_bos = m_parts.bos;
    m_eos = m_parts.eos;
    m_adds_bos = m_parts.adds_bos;
    m_chat_template = m_parts.chat_template;
    m_fingerprint = m_parts.fingerprint;
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    const std::string repaired = repair_utf8(text);
    return encode_marked({repaired, {{0, repaired.size()}}});
  }
  std::vector<std::int32_t> encode_with_special(std::string_view text) const override {
    return encode_marked({repair_utf8(text), {}});
  }
  std::vector<std::int32_t> encode_chat(std::span<const ChatPiece> pieces) const override {
    return encode_parts(pieces, [&](const MarkedText& part) { return encode_marked(part); });
  }

  std::string token_bytes(std::int32_t id, bool at_start) const override {
    if (!m_parts.pieces->has(id) || is_marked(m_parts.special, id)) return {};
    std::string bytes = text_of(id, at_start);
    if (at_start && m_parts.dropped_spaces == DroppedSpaces::first && bytes.starts_with(' ')) bytes.erase(0, 1);
    return bytes;
  }

  std::int64_t vocab_size() const override { return m_parts.pieces->size(); }
  std::string piece(std::int32_t id) const override { return m_parts.pieces->piece(id); }
  std::optional<std::int32_t> id_of(std::string_view piece) const override {
    return m_parts.pieces->find(piece);
  }

 private:
  /// \param first whether it is the first token of a text
  std::string text_of(std::int32_t id, bool first) const {
    const std::string& piece = m_parts.pieces->piece(id);
    if (m_parts.spelling == Spelling::byte_letters)
      return is_marked(m_parts.literal, id) ? piece : bytes_of_letters(piece).value_or(piece);
    const auto byte = m_parts.names_bytes ? named_byte(piece) : std::nullopt;
    if (byte) return {static_cast<char>(*byte)};
    const bool drops = first && m_parts.dropped_spaces == DroppedSpaces::of_first_token;
    return with_spaces(piece, drops ? "" : " ");
  }

  std::vector<std::int32_t> encode_marked(const MarkedText& marked) const {
    const std::string_view text = marked.text;
    require_encodable(text);
    std::vector<std::int32_t> ids;
    for (const Segment& segment : m_parts.added_raw.split(text, marked.plain)) {
      if (const auto* id = std::get_if<std::int32_t>(&segment)) {
        ids.push_back(*id);
        continue;
      }
      const std::string_view raw = std::get<std::string_view>(segment);
      const auto begin = static_cast<std::size_t>(raw.data() - text.data());
      for (const Part& part : parts_of({begin, begin + raw.size()}, marked.plain))
        encode_raw(text.substr(part.begin, part.end - part.begin), part.begin == 0, part.with_special, ids);
    }
    return ids;
  }

  struct Part : TextRange {
    bool with_special;
  };

  /// Special tokens that are found after a text is normalised need it cut where plain parts begin and end. Else
  /// the text remains whole, and its words too.
  std::vector<Part> parts_of(const TextRange& all, const std::vector<TextRange>& plain) const {
    if (!m_parts.added_normalised.has_special()) return {{all, false}};
    std::vector<Part> parts;
    const auto add = [&](std::size_t begin, std::size_t end, bool with_special) {
      begin = std::max(begin, all.begin);
      end = std::min(end, all.end);
      if (begin < end) parts.push_back({{begin, end}, with_special});
    };
    std::size_t done = all.begin;
    for (const TextRange& range : plain) {
      add(done, range.begin, true);
      add(range.begin, range.end, false);
      done = std::max(done, range.end);
    }
    add(done, all.end, true);
    return parts;
  }

  void encode_raw(std::string_view raw, bool first, bool with_special, std::vector<std::int32_t>& ids) const {
    encode_normal(m_parts.normalised(raw), first, with_special, ids);
  }

  void encode_normal(std::string_view text, bool first, bool with_special,
                     std::vector<std::int32_t>& ids) const {
    for (const Segment& segment : m_parts.added_normalised.split(text, with_special)) {
      if (const auto* id = std::get_if<std::int32_t>(&segment)) {
        ids.push_back(*id);
        continue;
      }
      const std::string_view part = std::get<std::string_view>(segment);
      for (const std::string& word : split_text(m_parts.split_steps, part, first && part.data() == text.data()))
        m_parts.merge(word, ids);
    }
  }

  Pipeline m_parts;
};

}  // namespace

std::string Pipeline::normalised(std::string_view raw) const {
  std::string normal(raw);
  for (const NormalStep& step : normal_steps) {
    normal = step(std::move(normal));
    require_moderate_growth(raw.size(), normal.size());
  }
  return normal;
}

void Pipeline::mark(std::vector<bool>& marks, std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (marks.size() <= index) marks.resize(index + 1, false);
  marks[index] = true;
}

std::unique_ptr<const Tokenizer> make_pipeline_tokenizer(Pipeline pipeline) {
  return std::make_unique<PipelineTokenizer>(std::move(pipeline));
}

}  // namespace kformer::Impl::tokenizers
