// SPDX-License-Identifier: MIT
#include "data/lines/line_members.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

constexpr const char* prompt_members[] = {"prompt", "messages", "conversations", "question", "instruction"};

/// The names that a message uses.
struct MessageNames {
  const char *role, *text;
};

/// Those of ShareGPT if the first message has them.
MessageNames message_names(const json& list) {
  const bool sharegpt =
      !list.empty() && list[0].is_object() && list[0].contains("from") && !list[0].contains("role");
  return sharegpt ? MessageNames{"from", "value"} : MessageNames{"role", "content"};
}

/// The role as chat templates call it.
std::string role_of(const std::string& name) {
  if (name == "human") return "user";
  if (name == "gpt") return "assistant";
  if (name == "developer") return "system";
  return name;
}

std::string text_of(const JsonLine& line, const json& message, const char* key, const std::string& place) {
  if (!message.is_object() || !message.contains(key) || !message.at(key).is_string())
    line.refuse(fmt::format("{} has no text \"{}\"", place, key));
  return message.at(key).get<std::string>();
}

/// What a message says: a text, or parts that are texts.
std::string content_of(const JsonLine& line, const json& message, const char* key, const std::string& place) {
  const bool has_parts = message.contains(key) && message.at(key).is_array() && !message.at(key).empty();
  if (!has_parts) return text_of(line, message, key, place);
  std::string content;
  for (const json& part : message.at(key)) {
    const bool is_text = part.is_object() && part.contains("type") && part.at("type") == "text";
    if (!is_text)
      line.refuse(
          fmt::format(R"({} has a part that is no text; expected {{"type": "text", "text": ...}})", place));
    content += text_of(line, part, "text", "a part of " + place);
  }
  return content;
}

std::string member_text(const JsonLine& line, const json& object, const char* name) {
  const json& value = object.at(name);
  if (!value.is_string()) line.refuse(fmt::format("\"{}\" is not a text", name));
  return value.get<std::string>();
}

/// A member that may be missing or null; then it is empty.
std::string optional_text(const JsonLine& line, const json& object, const char* name) {
  return object.contains(name) && !object.at(name).is_null() ? member_text(line, object, name) : std::string();
}

/// An instruction with what it is about, as Alpaca has them.
std::string instruction_of(const JsonLine& line, const json& object) {
  if (object.contains("history") && !object.at("history").empty())
    line.refuse(R"("history" is beside "instruction"; expected the whole conversation as "messages")");
  const std::string input = optional_text(line, object, "input");
  return member_text(line, object, "instruction") + (input.empty() ? "" : "\n" + input);
}

}  // namespace

Messages messages_of(const JsonLine& line, const json& value, const std::string& name) {
  const json list = value.is_object() ? json::array({value}) : value;
  if (!list.is_array() || list.empty()) line.refuse(fmt::format("\"{}\" is not a list of messages", name));
  const MessageNames names = message_names(list);
  Messages messages;
  for (const json& message : list) {
    const std::string place = fmt::format("message {} of \"{}\"", messages.size(), name);
    const std::string given = text_of(line, message, names.role, place), role = role_of(given);
    if (role != "system" && role != "user" && role != "assistant")
      line.refuse(fmt::format(
          "{} has the unknown role '{:.40}'; expected system (developer), user (human) or assistant (gpt)",
          place, given));
    messages.push_back({role, content_of(line, message, names.text, place)});
  }
  return messages;
}

Words words_of(const JsonLine& line, const json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array() && !value.is_object())
    line.refuse(fmt::format("\"{}\" is neither a text nor a list of messages", name));
  return messages_of(line, value, name);
}

Messages spoken_by(const char* role, Words words) {
  if (auto* text = std::get_if<std::string>(&words)) return {ChatMessage{role, std::move(*text)}};
  return std::get<Messages>(std::move(words));
}

std::string prompt_member(const json& object) {
  const auto* found =
      std::ranges::find_if(prompt_members, [&](const char* name) { return object.contains(name); });
  return found == std::end(prompt_members) ? "" : *found;
}

Words prompt_of(const JsonLine& line, const json& object, const std::string& member) {
  if (member == "prompt") return words_of(line, object.at(member), member);
  if (member == "question") return Messages{{"user", member_text(line, object, "question")}};
  if (member == "instruction") return Messages{{"user", instruction_of(line, object)}};
  return messages_of(line, object.at(member), member);
}

std::string system_of(const JsonLine& line, const json& object) {
  return optional_text(line, object, "system");
}

Messages with_system(const JsonLine& line, const std::string& system, Messages messages) {
  if (system.empty()) return messages;
  if (messages.front().role != "system")
    messages.insert(messages.begin(), {"system", system});
  else if (messages.front().content != system)
    line.refuse(R"("system" is not what the first message says; expected one message of the system)");
  return messages;
}

Words with_system(const JsonLine& line, const std::string& system, Words words) {
  if (system.empty()) return words;
  return with_system(line, system, spoken_by("user", std::move(words)));
}

void check_turns(const JsonLine& line, const Messages& prompt, const Messages& completion, const char* name) {
  if (prompt.back().role != "user")
    line.refuse(
        fmt::format("the prompt ends with a message of the {}; expected one of the user", prompt.back().role));
  if (completion.front().role != "assistant")
    line.refuse(
        fmt::format("behind the prompt \"{}\" goes on with a message of the {}; expected one of the assistant",
                    name, completion.front().role));
}

}  // namespace kformer::Impl::data
