// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "data/documents.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

constexpr const char* expected_line =
    R"(expected {"messages": [{"role": ..., "content": ...}]} or {"conversations": [{"from": ..., "value": ...}]})";

/// One of the two ways to write a conversation.
struct Dialect {
  const char *list, *role, *text;
};
constexpr Dialect dialects[] = {{"messages", "role", "content"}, {"conversations", "from", "value"}};

/// The role as chat templates call it.
std::string role_of(const std::string& name) {
  if (name == "human") return "user";
  if (name == "gpt") return "assistant";
  return name;
}

/// A line of the file.
class Line {
 public:
  Line(const std::string& source, std::int64_t number) : m_source(source), m_number(number) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw FileError(fmt::format("'{}', line {}: {}", m_source, m_number, what));
  }

  std::vector<ChatMessage> parse(std::string_view text) const {
    const json conversation = parse_json(text);
    for (const Dialect& dialect : dialects)
      if (conversation.is_object() && conversation.contains(dialect.list))
        return messages(conversation.at(dialect.list), dialect);
    refuse(std::string("the line is not a conversation; ") + expected_line);
  }

 private:
  json parse_json(std::string_view text) const {
    try {
      return json::parse(text);
    } catch (const json::parse_error& error) {
      refuse(fmt::format("the line is not JSON, at byte {}; {}", error.byte, expected_line));
    } catch (const json::out_of_range&) {
      refuse("a number is beyond the range of doubles");
    }
  }

  std::vector<ChatMessage> messages(const json& list, const Dialect& dialect) const {
    if (!list.is_array() || list.empty()) refuse(fmt::format("\"{}\" is not a list of messages", dialect.list));
    std::vector<ChatMessage> messages;
    for (const json& message : list) {
      const std::string place = fmt::format("message {}", messages.size());
      const std::string name = text_of(message, dialect.role, place), role = role_of(name);
      if (role != "system" && role != "user" && role != "assistant")
        refuse(fmt::format("{} has the unknown role '{:.40}'; expected system, user (human) or assistant (gpt)",
                           place, name));
      messages.push_back({role, text_of(message, dialect.text, place)});
    }
    return messages;
  }

  std::string text_of(const json& message, const char* key, const std::string& place) const {
    if (!message.is_object() || !message.contains(key) || !message.at(key).is_string())
      refuse(fmt::format("{} has no text \"{}\"", place, key));
    return message.at(key).get<std::string>();
  }

  const std::string& m_source;
  std::int64_t m_number;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

TokenDocuments chat_documents(std::string_view contents, ChatEncoder& encoder, const std::string& source) {
  TokenDocuments documents;
  std::string_view rest = without_byte_order_mark(contents);
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    if (is_blank(text)) continue;
    const Line line(source, number);
    try {
      encoder.append(line.parse(text), documents);
    } catch (const NotSupported& error) {
      line.refuse(error.what());
    }
  }
  return documents;
}

}  // namespace kformer::Impl::data
