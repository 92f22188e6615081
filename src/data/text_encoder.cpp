// SPDX-License-Identifier: MIT
#include "data/text_encoder.hpp"

#include <algorithm>
#include <string>

namespace kformer::Impl::data {
namespace {

constexpr std::string_view anchor = "\n", probe = "a";

void add(std::vector<std::int32_t>& ids, std::span<const std::int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

TextEncoder::TextEncoder(const Tokenizer& tokenizer) : m_tokenizer(&tokenizer) {
  std::string bytes;
  for (const std::int32_t id : tokenizer.encode(probe)) bytes += tokenizer.token_bytes(id, false);
  m_puts_space = bytes.starts_with(' ');
  if (!m_puts_space) return;
  m_anchor = tokenizer.encode(anchor);
  std::vector<std::int32_t> ends = tokenizer.eos();
  if (tokenizer.bos()) ends.push_back(*tokenizer.bos());
  m_puts_space_after = std::ranges::all_of(ends, [&](std::int32_t id) { return puts_space_after(id); });
}

/// Some tokenizers put a space before every text between special tokens, some before the first only.
bool TextEncoder::puts_space_after(std::int32_t control) const {
  auto ids = m_tokenizer->encode_with_special(m_tokenizer->piece(control).append(probe));
  if (ids.empty() || ids.front() != control) return true;
  ids.erase(ids.begin());
  return ids == m_tokenizer->encode(probe);
}

std::optional<std::int32_t> TextEncoder::control(std::string_view spelling) const {
  const auto ids = m_tokenizer->encode_with_special(spelling);
  if (ids.size() != 1 || ids == m_tokenizer->encode(spelling)) return {};
  return ids[0];
}

void TextEncoder::append(std::string_view piece, After after, std::vector<std::int32_t>& ids) const {
  const bool within = after == After::text || (after == After::control && !m_puts_space_after);
  if (m_puts_space && within) {
    const auto anchored = m_tokenizer->encode(std::string(anchor).append(piece));
    if (anchored.size() >= m_anchor.size() && std::equal(m_anchor.begin(), m_anchor.end(), anchored.begin()))
      return add(ids, std::span(anchored).subspan(m_anchor.size()));
  }
  add(ids, m_tokenizer->encode(piece));
}

}  // namespace kformer::Impl::data
