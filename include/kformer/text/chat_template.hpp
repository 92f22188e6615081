// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/types/names.hpp"

/// \file
/// Converts conversations to the text format that a chat model was trained on.

namespace kformer {

/// A message of a conversation.
struct ChatMessage {
  std::string role;     ///< "system" (first only), "user" or "assistant"
  std::string content;  ///< what is said
};

/// The supported conversation formats.
enum class ChatStyle { chatml, llama3, llama2, mistral, zephyr };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 5> names_of<ChatStyle> = {"chatml", "llama3", "llama2", "mistral",
                                                                        "zephyr"};

/// The conversation format of a model. Recognised from the text of its published template; templates are
/// programs (Jinja), and this library does not run them.
struct ChatTemplate {
  ChatStyle style = ChatStyle::chatml;  ///< the family of the template
  std::string default_system;           ///< the system message of conversations that have none; may be empty.
                                        ///< llama3: text before the system message of every conversation
  std::string eos = "</s>";             ///< spelling of the end-of-text token; llama2, mistral, zephyr
  std::string bos = "<s>";              ///< spelling of the beginning-of-text token; llama2 only

  /// Recognises a published template: chatml by `<|im_start|>` without `<|im_sep|>`, llama3 by
  /// `<|start_header_id|>`, llama2 by `[INST]` and `<<SYS>>`, mistral by `[INST]` alone, with the spaces of its
  /// first versions, zephyr by `<|user|>` with `eos_token` in the same expression. A system message that a chatml
  /// template contains becomes `default_system`. So do the dates with which templates of Llama 3.1 and later begin
  /// ("26 Jul 2024", their default without a clock). `eos` and `bos` remain what they are: `chat_template_of` takes
  /// them from a tokenizer.
  /// \param text the template, from `Tokenizer::chat_template`
  /// \throws NotSupported if there is none, or if its style is unknown
  static ChatTemplate recognise(std::string_view text);
};

/// The conversation as text, up to the next turn of the assistant, without the beginning-of-text token (`adds_bos`).
/// The text does not tell control tokens from what messages spell out: for tokens, use `chat_prompt`.
/// \param chat     how it is written
/// \param messages at most one system message, first; then user and assistant alternate, and a user message is
///                 last
/// \throws NotSupported naming the message that is out of order or has an unknown role
std::string apply_chat(const ChatTemplate& chat, std::span<const ChatMessage> messages);

/// A part of a conversation's text.
struct ChatPiece {
  std::string text;      ///< not empty
  bool control = false;  ///< the template's spelling of a token, such as `<|im_end|>`; `Tokenizer::encode_chat`
                         ///< reads special tokens only there
  bool answer = false;   ///< what a model learns to say: an answer of the assistant, and the token that ends it
};

/// A finished conversation, for training; joined, the pieces are its text without the beginning-of-text token.
/// \param chat     how it is written
/// \param messages at most one system message, first. User and assistant must alternate in the styles llama2
///                 and mistral, the user first; the others write any order
/// \throws NotSupported naming the message that is out of order or has an unknown role, or if there is none
std::vector<ChatPiece> chat_pieces(const ChatTemplate& chat, std::span<const ChatMessage> messages);

/// The conversation up to the next turn of the assistant, for `Tokenizer::encode_chat`; joined, the pieces are what
/// `apply_chat` returns.
/// \param chat     how it is written
/// \param messages as for `apply_chat`
/// \throws NotSupported as `apply_chat`
std::vector<ChatPiece> chat_prompt(const ChatTemplate& chat, std::span<const ChatMessage> messages);

}  // namespace kformer
