// SPDX-License-Identifier: MIT
#include "text/tokenizer/pipeline.hpp"

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
  }

  std::vector<std::int32_t> encode(std::string_view text) const override { return encode(text, false); }
  std::vector<std::int32_t> encode_with_special(std::string_view text) const override {
    return encode(text, true);
  }

  std::string token_bytes(std::int32_t id, bool at_start) const override {
    if (!m_parts.pieces->has(id) || is_marked(m_parts.special, id)) return {};
    const std::string& piece = m_parts.pieces->piece(id);
    if (is_marked(m_parts.literal, id)) return piece;
    if (m_parts.spelling == Spelling::byte_letters) return bytes_of_letters(piece).value_or(piece);
    return bytes_of_spelling(piece, at_start && m_parts.drops_first_space);
  }

  std::int64_t vocab_size() const override { return m_parts.pieces->size(); }
  std::string piece(std::int32_t id) const override { return m_parts.pieces->piece(id); }
  std::optional<std::int32_t> id_of(std::string_view piece) const override {
    return m_parts.pieces->find(piece);
  }

 private:
  std::vector<std::int32_t> encode(std::string_view bytes, bool with_special) const {
    require_encodable(bytes);
    const std::string text = repair_utf8(bytes);
    std::vector<std::int32_t> ids;
    for (const Segment& segment : m_parts.added_raw.split(text, with_special)) {
      if (const auto* id = std::get_if<std::int32_t>(&segment)) {
        ids.push_back(*id);
        continue;
      }
      const std::string_view raw = std::get<std::string_view>(segment);
      std::string normal(raw);
      for (const NormalStep& step : m_parts.normal_steps) normal = step(std::move(normal));
      encode_normal(normal, raw.data() == text.data(), with_special, ids);
    }
    return ids;
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

void Pipeline::mark(std::vector<bool>& marks, std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (marks.size() <= index) marks.resize(index + 1, false);
  marks[index] = true;
}

std::unique_ptr<const Tokenizer> make_pipeline_tokenizer(Pipeline pipeline) {
  return std::make_unique<PipelineTokenizer>(std::move(pipeline));
}

}  // namespace kformer::Impl::tokenizers
