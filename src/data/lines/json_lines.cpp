// SPDX-License-Identifier: MIT
#include "data/lines/json_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/json_depth.hpp"
#include "io/utf8.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

/// Copies and writers of JSON call themselves for each level.
constexpr int deepest = 64;

/// The role as chat templates call it.
std::string role_of(const std::string& name) {
  if (name == "human") return "user";
  if (name == "gpt") return "assistant";
  return name;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

void JsonLine::refuse(const std::string& what) const {
  throw FileError(fmt::format("'{}', line {}: {}", m_source, m_number, what));
}

void JsonLine::refuse_line(const std::string& what) const { refuse(what + "; " + m_expected); }

json JsonLine::parse(std::string_view text) const {
  if (!is_shallow_json(text, deepest))
    refuse(fmt::format("the line is nested more than {} levels deep", deepest));
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    refuse_line(fmt::format("the line is not JSON, at byte {}", error.byte));
  } catch (const json::out_of_range&) {
    refuse("a number is beyond the range of doubles");
  }
}

std::vector<ChatMessage> JsonLine::messages(const json& list, MessageNames names, const std::string& name,
                                            const std::string& of) const {
  if (!list.is_array() || list.empty()) refuse(fmt::format("\"{}\" is not a list of messages", name));
  std::vector<ChatMessage> messages;
  for (const json& message : list) {
    const std::string place = fmt::format("message {}{}", messages.size(), of);
    const std::string given = text_of(message, names.role, place), role = role_of(given);
    if (role != "system" && role != "user" && role != "assistant")
      refuse(fmt::format("{} has the unknown role '{:.40}'; expected system, user (human) or assistant (gpt)",
                         place, given));
    messages.push_back({role, text_of(message, names.text, place)});
  }
  return messages;
}

std::string JsonLine::text_of(const json& message, const char* key, const std::string& place) const {
  if (!message.is_object() || !message.contains(key) || !message.at(key).is_string())
    refuse(fmt::format("{} has no text \"{}\"", place, key));
  return message.at(key).get<std::string>();
}

void JsonLine::read(const std::function<void()>& read) const {
  try {
    read();
  } catch (const NotSupported& error) {
    refuse(error.what());
  }
}

void for_each_line(std::string_view contents, const std::string& source, const char* expected,
                   const std::function<void(const JsonLine&, std::string_view)>& read) {
  std::string_view rest = without_byte_order_mark(contents);
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    if (!is_blank(text)) read(JsonLine(source, number, expected), text);
  }
}

}  // namespace kformer::Impl::data
