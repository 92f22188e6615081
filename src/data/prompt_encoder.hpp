// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat_encoder.hpp"
#include "data/lines/json_lines.hpp"
#include "data/text_encoder.hpp"
#include "data/token_shard.hpp"

namespace kformer::Impl::data {

/// How prompts and completions are written: a part of the options of every data set that has them.
struct PromptWriting {
  const std::optional<ChatTemplate>& chat;
  const std::optional<std::int32_t>& bos;
  const std::optional<bool>& add_bos;
  std::int64_t vocab_size;
};

/// Tokens of prompts and of completions.
class PromptEncoder {
 public:
  PromptEncoder(const Tokenizer& tokenizer, const PromptWriting& writing);

  /// A prompt as a model reads it before it writes a completion.
  /// \throws NotSupported if messages are out of order or there is no template for them
  std::vector<std::int32_t> prompt(std::string_view text) const;
  std::vector<std::int32_t> prompt(std::span<const ChatMessage> messages);

  /// Appends prompt and completion as one document; learnt is what of the completion a model is to write. There may be
  /// no messages of the prompt.
  void append(std::string_view prompt, std::string_view completion, TokenDocuments& documents) const;
  void append(std::span<const ChatMessage> prompt, std::span<const ChatMessage> completion,
              TokenDocuments& documents);

  /// Refuses a line whose tokens are not in the vocabulary.
  void check(std::span<const std::int32_t> ids, const JsonLine& line) const;

 private:
  ChatTemplate chat_template() const;
  ChatEncoder& chat_encoder();

  const Tokenizer* m_tokenizer;
  TextEncoder m_text;
  PromptWriting m_writing;
  std::optional<std::int32_t> m_bos;  ///< of the model, whether or not it precedes a prompt
  bool m_add_bos;
  std::optional<ChatEncoder> m_chat;  ///< once messages were seen
};

}  // namespace kformer::Impl::data
