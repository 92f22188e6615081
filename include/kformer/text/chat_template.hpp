// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

/// \file
/// Conversations as the text that a chat model was trained on.

namespace kformer {

/// A message of a conversation.
struct ChatMessage {
  std::string role;     ///< "system" (first only), "user" or "assistant"
  std::string content;  ///< what is said
};

/// The ways of writing conversations that this library has.
enum class ChatStyle { chatml, llama3, llama2, mistral, zephyr };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 5> names_of<ChatStyle> = {"chatml", "llama3", "llama2", "mistral",
                                                                        "zephyr"};

/// How a model wants conversations written. Recognised from what its published template contains; templates are
/// programs (Jinja), and this library does not run them.
struct ChatTemplate {
  ChatStyle style = ChatStyle::chatml;  ///< the family of the template
  std::string default_system;           ///< the system message of conversations that have none; may be empty.
                                        ///< llama3: what stands before the system message of every conversation
  std::string eos = "</s>";             ///< how the end of a text is written; llama2, mistral, zephyr
  std::string bos = "<s>";              ///< how the beginning of a text is written; llama2 only

  /// Recognises a published template: chatml by `<|im_start|>`, llama3 by `<|start_header_id|>`, llama2 by
  /// `[INST]` and `<<SYS>>`, mistral by `[INST]` alone, zephyr by `<|user|>` and `eos_token`. A system message
  /// that the text of a chatml template writes by itself becomes `default_system`, and so do the dates with
  /// which templates of Llama 3.1 and later begin ("26 Jul 2024", as they have it where no clock is given).
  /// \param text the template, from `Tokenizer::chat_template`
  /// \throws NotSupported if there is none, or if it is of no known style
  static ChatTemplate recognise(std::string_view text);
};

/// The conversation as text, up to where the assistant speaks next; to be given to
/// `Tokenizer::encode_with_special`. The token for the beginning of the text is not part of it (`adds_bos`).
/// \param chat     how it is written
/// \param messages at most one of the system, first; then user and assistant in turn, a user last
/// \throws NotSupported naming the message that is out of order or has an unknown role
std::string apply_chat(const ChatTemplate& chat, std::span<const ChatMessage> messages);

}  // namespace kformer
