// SPDX-License-Identifier: MIT
#include "kformer/text/chat_template.hpp"

#include <string>

#include "kformer/core/error.hpp"

namespace kformer {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Templates trim the white space of messages, as Python does.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\n\r\f\v";
  const auto begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

/// The system message that a chatml template contains: the first that is all literal text.
std::string literal_system_message(std::string_view text) {
  constexpr std::string_view begin = "<|im_start|>system", end = "<|im_end|>";
  for (auto at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
    std::string_view rest = text.substr(at + begin.size());
    // In the text of the template the new line is itself, or is written as an escape.
    if (!rest.starts_with("\n") && !rest.starts_with("\\n")) continue;
    rest.remove_prefix(rest[0] == '\n' ? 1 : 2);
    const auto length = rest.find(end);
    if (length == std::string_view::npos) return {};
    const std::string_view message = rest.substr(0, length);
    if (message.find_first_of("'\"{}\\") == std::string_view::npos) return std::string(message);
  }
  return {};
}

[[noreturn]] void refuse(std::size_t index, const ChatMessage& message, const std::string& why) {
  throw NotSupported("kformer::apply_chat: message " + std::to_string(index) + " of role '" +
                     message.role.substr(0, 40) + "': " + why);
}

void check_order(std::span<const ChatMessage> messages) {
  const std::size_t first = !messages.empty() && messages[0].role == "system" ? 1 : 0;
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "system") refuse(i, messages[i], "a system message must come first, and only once");
    if (role != "user" && role != "assistant")
      refuse(i, messages[i],
             "the role must be system, user or "
             "assistant");
    const bool users_turn = (i - first) % 2 == 0;
    if (users_turn != (role == "user"))
      refuse(i, messages[i], "user and assistant must alternate, the user first");
  }
  if (messages.size() <= first || messages.back().role != "user")
    throw NotSupported("kformer::apply_chat: the last of " + std::to_string(messages.size()) +
                       " messages is not from the user; there is nothing to answer");
}

std::string apply_chatml(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string text;
  if (messages[0].role != "system" && !chat.default_system.empty())
    text += "<|im_start|>system\n" + chat.default_system + "<|im_end|>\n";
  for (const ChatMessage& message : messages)
    text += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
  return text + "<|im_start|>assistant\n";
}

std::string llama3_header(const std::string& role) {
  return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
}

std::string apply_llama3(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string text;
  const bool has_system = messages[0].role == "system";
  if (has_system || !chat.default_system.empty()) {
    text += llama3_header("system") + chat.default_system;
    if (has_system) text += trimmed(messages[0].content);
    text += "<|eot_id|>";
  }
  for (const ChatMessage& message : messages.subspan(has_system ? 1 : 0)) {
    text += llama3_header(message.role);
    text += trimmed(message.content);
    text += "<|eot_id|>";
  }
  return text + llama3_header("assistant");
}

std::string apply_llama2(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string text, system;
  if (messages[0].role == "system") {
    system = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n";
    messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) {
    if (message.role == "user") {
      if (&message != &messages.front()) text += chat.bos;
      const std::string said = system + message.content;
      text += "[INST] ";
      text += trimmed(said);
      text += " [/INST]";
      system.clear();
    } else {
      text += " ";
      text += trimmed(message.content);
      text += " " + chat.eos;
    }
  }
  return text;
}

/// The system message precedes the first user message, as in the published templates that have one.
std::string apply_mistral(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string text, system;
  if (messages[0].role == "system") {
    system = messages[0].content + "\n\n";
    messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) {
    if (message.role == "user")
      text += "[INST] " + system + message.content + " [/INST]";
    else
      text += message.content + chat.eos;
    system.clear();
  }
  return text;
}

std::string apply_zephyr(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string text;
  for (const ChatMessage& message : messages)
    text += "<|" + message.role + "|>\n" + message.content + chat.eos + "\n";
  return text + "<|assistant|>\n";
}

}  // namespace

ChatTemplate ChatTemplate::recognise(std::string_view text) {
  ChatTemplate chat;
  if (has(text, "<|im_start|>")) {
    chat.style = ChatStyle::chatml;
    chat.default_system = literal_system_message(text);
  } else if (has(text, "<|start_header_id|>")) {
    chat.style = ChatStyle::llama3;
    // Llama 3.1 and later add this to every conversation; programs without a clock use this day.
    if (has(text, "Cutting Knowledge Date"))
      chat.default_system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  } else if (has(text, "[INST]")) {
    chat.style = has(text, "<<SYS>>") ? ChatStyle::llama2 : ChatStyle::mistral;
  } else if (has(text, "<|user|>") && has(text, "eos_token") && !has(text, "<|end|>")) {
    chat.style = ChatStyle::zephyr;
  } else {
    const std::string found =
        text.empty() ? "the model has no chat template" : "the chat template has an unknown style";
    throw NotSupported("kformer::ChatTemplate::recognise: " + found +
                       "; supported: chatml, llama3, llama2, mistral, zephyr; write the prompt out instead");
  }
  return chat;
}

std::string apply_chat(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  check_order(messages);
  switch (chat.style) {
    case ChatStyle::chatml:
      return apply_chatml(chat, messages);
    case ChatStyle::llama3:
      return apply_llama3(chat, messages);
    case ChatStyle::llama2:
      return apply_llama2(chat, messages);
    case ChatStyle::mistral:
      return apply_mistral(chat, messages);
    case ChatStyle::zephyr:
      break;
  }
  return apply_zephyr(chat, messages);
}

}  // namespace kformer
