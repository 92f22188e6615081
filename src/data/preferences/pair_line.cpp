// SPDX-License-Identifier: MIT
#include "data/preferences/pair_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kformer::Impl::data {

const char* const expected_pair =
    R"(expected {"prompt": ..., "chosen": ..., "rejected": ...} with three texts or three lists of messages, or {"chosen": [...], "rejected": [...]} with the prompt in both lists)";

namespace {

using nlohmann::json;
using Messages = std::vector<ChatMessage>;

bool are_equal(const ChatMessage& a, const ChatMessage& b) {
  return a.role == b.role && a.content == b.content;
}

/// How many messages both lists begin with. Of each at least one remains.
std::ptrdiff_t common_messages(const Messages& a, const Messages& b) {
  const auto differ = std::ranges::mismatch(a, b, are_equal).in1 - a.begin();
  return std::min(differ, std::min(std::ssize(a), std::ssize(b)) - 1);
}

/// Takes the messages that both completions begin with as the prompt.
MessagePair with_prompt_in_both(Messages chosen, Messages rejected) {
  const auto common = common_messages(chosen, rejected);
  MessagePair pair{Messages(chosen.begin(), chosen.begin() + common), {}, {}};
  pair.chosen.assign(chosen.begin() + common, chosen.end());
  pair.rejected.assign(rejected.begin() + common, rejected.end());
  return pair;
}

void check_turns(const JsonLine& line, const MessagePair& pair) {
  if (pair.prompt.empty())
    line.refuse("there is no \"prompt\", and \"chosen\" and \"rejected\" have no first messages in common");
  if (pair.prompt.back().role != "user")
    line.refuse(fmt::format("the prompt ends with a message of the {}; expected one of the user",
                            pair.prompt.back().role));
  for (const auto& [name, completion] :
       {std::pair("chosen", &pair.chosen), std::pair("rejected", &pair.rejected)})
    if (completion->front().role != "assistant")
      line.refuse(fmt::format(
          "behind the prompt \"{}\" goes on with a message of the {}; expected one of the assistant", name,
          completion->front().role));
}

MessagePair message_pair(const JsonLine& line, const json& object) {
  Messages chosen = messages_of(line, object.at("chosen"), "chosen");
  Messages rejected = messages_of(line, object.at("rejected"), "rejected");
  if (!object.contains("prompt")) return with_prompt_in_both(std::move(chosen), std::move(rejected));
  const json& prompt = object.at("prompt");
  if (!prompt.is_string()) return {messages_of(line, prompt, "prompt"), std::move(chosen), std::move(rejected)};
  const ChatMessage said{"user", prompt.get<std::string>()};
  MessagePair both = with_prompt_in_both(chosen, rejected);
  if (both.prompt.empty()) return {{said}, std::move(chosen), std::move(rejected)};
  if (std::ranges::none_of(both.prompt, [&](const ChatMessage& message) { return are_equal(message, said); }))
    line.refuse("\"chosen\" and \"rejected\" begin with other messages than the user's \"prompt\"");
  return both;
}

}  // namespace

Messages messages_of(const JsonLine& line, const json& value, const std::string& name) {
  if (!value.is_array() && !value.is_object())
    line.refuse(fmt::format("\"{}\" is neither a text nor a list of messages", name));
  const json list = value.is_object() ? json::array({value}) : value;
  const bool sharegpt =
      !list.empty() && list[0].is_object() && list[0].contains("from") && !list[0].contains("role");
  return line.messages(list, sharegpt ? from_and_value : role_and_content, name,
                       fmt::format(" of \"{}\"", name));
}

std::variant<TextPair, MessagePair> pair_of(const JsonLine& line, std::string_view text) {
  const json object = line.parse(text);
  if (!object.is_object() || !object.contains("chosen") || !object.contains("rejected"))
    line.refuse_line("the line is not a pair");
  const json &chosen = object.at("chosen"), &rejected = object.at("rejected");
  if (chosen.is_string() != rejected.is_string())
    line.refuse("one of \"chosen\" and \"rejected\" is a text, the other is not");
  if (chosen.is_string()) {
    if (!object.contains("prompt") || !object.at("prompt").is_string())
      line.refuse("\"chosen\" and \"rejected\" are texts; expected a text \"prompt\", too");
    return TextPair{object.at("prompt").get<std::string>(), chosen.get<std::string>(),
                    rejected.get<std::string>()};
  }
  MessagePair pair = message_pair(line, object);
  check_turns(line, pair);
  return pair;
}

}  // namespace kformer::Impl::data
