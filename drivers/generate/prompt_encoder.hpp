// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decks/generate_deck.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/text/tokenizer.hpp"

namespace kformer::drivers {

/// The tokens of prompts: chat templates, special tokens, the beginning of texts.
class PromptEncoder {
 public:
  /// \param model says what the tokenizer may not: the ids of the beginning and the end of texts, and how many
  ///              it knows
  PromptEncoder(std::unique_ptr<const Tokenizer> tokenizer, const TokenizerTable& table,
                const LanguageModelTable& model);

  /// The tokens of a prompt.
  /// \throws NotSupported if there is no chat template for a chat, the prompt would have no token, or one that
  /// the model does not know
  std::vector<std::int32_t> encode(const PromptTable& prompt) const;
  /// Tokens that end a text.
  const std::vector<std::int32_t>& end_of_text() const { return m_end_of_text; }
  const Tokenizer& tokenizer() const { return *m_tokenizer; }
  /// Identifies the tokenizer, and how it begins and ends texts.
  std::string fingerprint() const;

 private:
  ChatTemplate chat_template() const;

  std::unique_ptr<const Tokenizer> m_tokenizer;
  std::optional<std::int32_t> m_begin;
  bool m_adds_begin;
  std::int64_t m_vocab_size;
  std::vector<std::int32_t> m_end_of_text;
};

}  // namespace kformer::drivers
