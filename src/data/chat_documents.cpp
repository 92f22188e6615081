// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>
#include <vector>

#include "data/documents.hpp"
#include "data/lines/json_lines.hpp"

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

constexpr const char* expected_line =
    R"(expected {"messages": [{"role": ..., "content": ...}]} or {"conversations": [{"from": ..., "value": ...}]})";

/// One of the two ways to write a conversation.
struct Dialect {
  const char* list;
  MessageNames names;
};
constexpr Dialect dialects[] = {{"messages", role_and_content}, {"conversations", from_and_value}};

std::vector<ChatMessage> conversation_of(const JsonLine& line, std::string_view text) {
  const json conversation = line.parse(text);
  for (const auto& [list, names] : dialects)
    if (conversation.is_object() && conversation.contains(list))
      return line.messages(conversation.at(list), names, list);
  line.refuse_line("the line is not a conversation");
}

}  // namespace

TokenDocuments chat_documents(std::string_view contents, ChatEncoder& encoder, const std::string& source) {
  TokenDocuments documents;
  for_each_line(contents, source, expected_line, [&](const JsonLine& line, std::string_view text) {
    line.read([&] { encoder.append(conversation_of(line, text), documents); });
  });
  return documents;
}

}  // namespace kformer::Impl::data
