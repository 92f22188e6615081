// SPDX-License-Identifier: MIT
#include "kformer/text/chat_template.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "kformer/core/error.hpp"

namespace kformer {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// A text without white space at its ends, as templates trim messages: what str.strip() of Python removes.
std::string_view trimmed(std::string_view text) {
  constexpr std::array<std::string_view, 29> spaces{
      " ",        "\t",       "\n",     "\v",     "\f",     "\r",     "\x1C",   "\x1D",   "\x1E",   "\x1F",
      "\xC2\x85", "\xC2\xA0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
      "\u2007",   "\u2008",   "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};
  const auto begins = [&](std::string_view space) { return text.starts_with(space); };
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  for (auto space = std::ranges::find_if(spaces, begins); space != spaces.end();
       space = std::ranges::find_if(spaces, begins))
    text.remove_prefix(space->size());
  for (auto space = std::ranges::find_if(spaces, ends); space != spaces.end();
       space = std::ranges::find_if(spaces, ends))
    text.remove_suffix(space->size());
  return text;
}

/// A zephyr template ends the user's turn by the end of text, too. Others (Tulu 3, OLMo 2, Falcon 3) end only the
/// assistant's turn by it.
bool is_zephyr(std::string_view text) {
  constexpr std::string_view begin = "<|user|>";
  const auto at = text.find(begin);
  if (at == std::string_view::npos) return false;
  const std::string_view turn = text.substr(at + begin.size());
  const std::string_view expression = turn.substr(0, turn.find("}}"));
  return has(expression, "eos_token") && !has(text, "<|end|>");
}

/// Later templates of Mistral have a space before `[INST]`, none before `[/INST]`, or tokens around the system message.
bool has_spaces_of_later_mistral(std::string_view text) {
  constexpr std::array<std::string_view, 5> later{"' [INST]", "\" [INST]", "'[/INST]", "\"[/INST]",
                                                  "[SYSTEM_PROMPT]"};
  return std::ranges::any_of(later, [&](std::string_view part) { return has(text, part); });
}

/// The quotation mark right before a place, with which a literal begins there; or 0.
char quote_before(std::string_view text, std::size_t at) {
  if (at == 0 || !has("'\"", text.substr(at - 1, 1))) return '\0';
  const bool escaped = at > 1 && text[at - 2] == '\\';
  return escaped ? '\0' : text[at - 1];
}

/// What `\c` in a literal means. Unknown escapes mean themselves, as in Python.
std::string unescaped(char c) {
  if (c == 'n') return "\n";
  if (c == 't') return "\t";
  const std::string itself(1, c);
  return has("\\'\"", itself) ? itself : "\\" + itself;
}

/// The text from `at` to `<|im_end|>`, or none if it is not all literal; then `at` is where a program begins.
/// \param quote with which the literal began; 0: nobody knows what quotation marks and braces are
std::optional<std::string> literal_message(std::string_view text, std::size_t& at, char quote) {
  std::string message;
  for (; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("<|im_end|>")) return message;
    if (rest.starts_with("{{") || rest.starts_with("{%")) return {};
    if (quote == '\0' ? has("'\"{}\\", rest.substr(0, 1)) : rest[0] == quote) return {};
    if (rest[0] == '\\' && rest.size() > 1)
      message += unescaped(text[++at]);
    else
      message += rest[0];
  }
  return {};
}

/// The system message that a chatml template contains: the first that is all literal text.
std::string literal_system_message(std::string_view text) {
  constexpr std::string_view begin = "<|im_start|>system";
  for (auto at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at)) {
    const char quote = quote_before(text, at);
    at += begin.size();
    // In the text of the template the new line is itself, or is written as an escape.
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with("\n") && !rest.starts_with("\\n")) continue;
    at += rest[0] == '\n' ? 1 : 2;
    // No message that begins before the place where this one stops could go on there.
    if (const auto message = literal_message(text, at, quote)) return *message;
  }
  return {};
}

/// \param alternate whether the template wants user and assistant in turns
void check_order(std::span<const ChatMessage> messages, bool alternate, const char* function) {
  const auto refuse = [&](std::size_t index, const std::string& why) {
    throw NotSupported(std::string(function) + ": message " + std::to_string(index) + " of role '" +
                       messages[index].role.substr(0, 40) + "': " + why);
  };
  const std::size_t first = !messages.empty() && messages[0].role == "system" ? 1 : 0;
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "system") refuse(i, "a system message must come first, and only once");
    if (role != "user" && role != "assistant") refuse(i, "the role must be system, user or assistant");
    const bool users_turn = (i - first) % 2 == 0;
    if (alternate && users_turn != (role == "user"))
      refuse(i, "user and assistant must alternate, the user first");
  }
}

/// A conversation as it grows.
class Pieces {
 public:
  Pieces& text(std::string_view text, bool answer = false) { return add(text, false, answer); }
  Pieces& control(std::string_view text, bool answer = false) { return add(text, true, answer); }

  std::vector<ChatPiece> all;

 private:
  Pieces& add(std::string_view text, bool control, bool answer) {
    if (text.empty()) return *this;
    const bool continues = !all.empty() && !control && !all.back().control && all.back().answer == answer;
    if (continues)
      all.back().text += text;
    else
      all.push_back({std::string(text), control, answer});
    return *this;
  }
};

bool is_answer(const ChatMessage& message) { return message.role == "assistant"; }

void begin_chatml(Pieces& pieces, std::string_view role) {
  pieces.control("<|im_start|>").text(role).text("\n");
}

void write_chatml(Pieces& pieces, const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  const auto write = [&](std::string_view role, std::string_view content, bool answer) {
    begin_chatml(pieces, role);
    pieces.text(content, answer).control("<|im_end|>", answer).text("\n");
  };
  if (messages[0].role != "system" && !chat.default_system.empty()) write("system", chat.default_system, false);
  for (const ChatMessage& message : messages) write(message.role, message.content, is_answer(message));
}

void begin_llama3(Pieces& pieces, std::string_view role) {
  pieces.control("<|start_header_id|>").text(role).control("<|end_header_id|>").text("\n\n");
}

void write_llama3(Pieces& pieces, const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  const bool has_system = messages[0].role == "system";
  if (has_system || !chat.default_system.empty()) {
    begin_llama3(pieces, "system");
    pieces.text(chat.default_system);
    if (has_system) pieces.text(trimmed(messages[0].content));
    pieces.control("<|eot_id|>");
  }
  for (const ChatMessage& message : messages.subspan(has_system ? 1 : 0)) {
    const bool answer = is_answer(message);
    begin_llama3(pieces, message.role);
    pieces.text(trimmed(message.content), answer).control("<|eot_id|>", answer);
  }
}

void write_llama2(Pieces& pieces, const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string system;
  if (messages[0].role == "system") {
    system = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n";
    messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) {
    if (is_answer(message)) {
      pieces.text(" ", true).text(trimmed(message.content), true).text(" ", true).control(chat.eos, true);
      continue;
    }
    if (&message != &messages.front()) pieces.control(chat.bos);
    const std::string said = system + message.content;
    pieces.control("[INST]").text(" ").text(trimmed(said)).text(" ").control("[/INST]");
    system.clear();
  }
}

/// The system message precedes the first user message, as in the published templates that have one.
void write_mistral(Pieces& pieces, const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string system;
  if (messages[0].role == "system") {
    system = messages[0].content + "\n\n";
    messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) {
    if (is_answer(message))
      pieces.text(message.content, true).control(chat.eos, true);
    else
      pieces.control("[INST]").text(" ").text(system).text(message.content).text(" ").control("[/INST]");
    system.clear();
  }
}

void begin_zephyr(Pieces& pieces, const std::string& role) { pieces.control("<|" + role + "|>").text("\n"); }

void write_zephyr(Pieces& pieces, const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  for (const ChatMessage& message : messages) {
    const bool answer = is_answer(message);
    begin_zephyr(pieces, message.role);
    pieces.text(message.content, answer).control(chat.eos, answer).text("\n");
  }
}

Pieces write_messages(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  Pieces pieces;
  switch (chat.style) {
    case ChatStyle::chatml:
      write_chatml(pieces, chat, messages);
      break;
    case ChatStyle::llama3:
      write_llama3(pieces, chat, messages);
      break;
    case ChatStyle::llama2:
      write_llama2(pieces, chat, messages);
      break;
    case ChatStyle::mistral:
      write_mistral(pieces, chat, messages);
      break;
    case ChatStyle::zephyr:
      write_zephyr(pieces, chat, messages);
      break;
  }
  return pieces;
}

/// What precedes an answer that is still to come.
void begin_answer(Pieces& pieces, ChatStyle style) {
  if (style == ChatStyle::chatml) begin_chatml(pieces, "assistant");
  if (style == ChatStyle::llama3) begin_llama3(pieces, "assistant");
  if (style == ChatStyle::zephyr) begin_zephyr(pieces, "assistant");
}

}  // namespace

ChatTemplate ChatTemplate::recognise(std::string_view text) {
  ChatTemplate chat;
  if (has(text, "<|im_start|>") && !has(text, "<|im_sep|>")) {
    chat.style = ChatStyle::chatml;
    chat.default_system = literal_system_message(text);
  } else if (has(text, "<|start_header_id|>")) {
    chat.style = ChatStyle::llama3;
    // Llama 3.1 and later add this to every conversation; programs without a clock use this day.
    if (has(text, "Cutting Knowledge Date"))
      chat.default_system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  } else if (has(text, "[INST]") && !has_spaces_of_later_mistral(text)) {
    chat.style = has(text, "<<SYS>>") ? ChatStyle::llama2 : ChatStyle::mistral;
  } else if (is_zephyr(text)) {
    chat.style = ChatStyle::zephyr;
  } else {
    const std::string found =
        text.empty() ? "the model has no chat template" : "the chat template has an unknown style";
    throw NotSupported("kformer::ChatTemplate::recognise: " + found +
                       "; supported: chatml, llama3, llama2, mistral, zephyr");
  }
  return chat;
}

std::vector<ChatPiece> chat_prompt(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  check_order(messages, true, "kformer::apply_chat");
  if (messages.empty() || messages.back().role != "user")
    throw NotSupported("kformer::apply_chat: the last of " + std::to_string(messages.size()) +
                       " messages is not from the user; there is nothing to answer");
  Pieces pieces = write_messages(chat, messages);
  begin_answer(pieces, chat.style);
  return pieces.all;
}

std::string apply_chat(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  std::string text;
  for (const ChatPiece& piece : chat_prompt(chat, messages)) text += piece.text;
  return text;
}

std::vector<ChatPiece> chat_pieces(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  const bool alternate = chat.style == ChatStyle::llama2 || chat.style == ChatStyle::mistral;
  check_order(messages, alternate, "kformer::chat_pieces");
  if (messages.empty()) throw NotSupported("kformer::chat_pieces: there are no messages");
  return write_messages(chat, messages).all;
}

}  // namespace kformer
