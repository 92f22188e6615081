// SPDX-License-Identifier: MIT
#include "generate/prompt_encoder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kformer/core/error.hpp"
#include "kformer/text/chat_template.hpp"

namespace kformer::drivers {

PromptEncoder::PromptEncoder(std::unique_ptr<const Tokenizer> tokenizer, const TokenizerTable& table,
                             const LanguageModelTable& model)
    : m_tokenizer(std::move(tokenizer)),
      m_begin(m_tokenizer->bos()),
      m_adds_begin(table.add_bos.value_or(m_tokenizer->adds_bos())),
      m_vocab_size(model.vocab_size),
      m_end_of_text(m_tokenizer->eos()) {
  if (!m_begin && !model.bos_token_ids.empty()) m_begin = static_cast<std::int32_t>(model.bos_token_ids[0]);
  for (const std::int64_t id : model.eos_token_ids)
    if (std::ranges::count(m_end_of_text, id) == 0) m_end_of_text.push_back(static_cast<std::int32_t>(id));
}

ChatTemplate PromptEncoder::chat_template() const {
  try {
    return chat_template_of(*m_tokenizer);
  } catch (const NotSupported& error) {
    throw NotSupported(fmt::format("{}; write the prompt out instead", error.what()));
  }
}

std::string PromptEncoder::fingerprint() const {
  return fmt::format("{}, begin {} {}, end {}", m_tokenizer->fingerprint(), m_begin.value_or(-1), m_adds_begin,
                     fmt::join(m_end_of_text, " "));
}

std::vector<std::int32_t> PromptEncoder::encode(const PromptTable& prompt) const {
  const std::string text = prompt_text(prompt);
  std::vector<std::int32_t> ids;
  if (prompt.chat) {
    std::vector<ChatMessage> messages;
    if (prompt.system) messages.push_back({"system", *prompt.system});
    messages.push_back({"user", text});
    const ChatTemplate chat = chat_template();
    ids = prompt.special_tokens ? m_tokenizer->encode_with_special(apply_chat(chat, messages))
                                : m_tokenizer->encode_chat(chat_prompt(chat, messages));
  } else {
    ids = prompt.special_tokens ? m_tokenizer->encode_with_special(text) : m_tokenizer->encode(text);
  }
  // An empty text still has a beginning.
  if (m_begin && (m_adds_begin || ids.empty()) && (ids.empty() || ids.front() != *m_begin))
    ids.insert(ids.begin(), *m_begin);
  if (ids.empty())
    throw NotSupported(
        fmt::format("prompt '{}' is empty, and the tokenizer has no beginning-of-text token", prompt.name));
  for (const std::int32_t id : ids)
    if (id >= m_vocab_size)
      throw NotSupported(
          fmt::format("prompt '{}' has token {}, but the model has only {}; does the tokenizer belong to the "
                      "model?",
                      prompt.name, id, m_vocab_size));
  return ids;
}

}  // namespace kformer::drivers
