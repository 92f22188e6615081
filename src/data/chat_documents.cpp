// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>
#include <variant>

#include "data/documents.hpp"
#include "data/lines/line_members.hpp"

namespace kformer::Impl::data {
namespace {

using nlohmann::json;

constexpr const char* expected_line =
    R"(expected "messages" or "conversations" with a list of messages, or a prompt with its completion: "prompt" and "completion", "instruction" and "output", or "question" and "answer")";

constexpr const char* conversations[] = {"messages", "conversations"};

/// Members with a prompt and its completion.
struct Task {
  const char *prompt, *completion;
};
constexpr Task tasks[] = {{"prompt", "completion"}, {"instruction", "output"}, {"question", "answer"}};

/// Of the prompt nothing is learnt.
void append_task(const JsonLine& line, const json& object, const Task& task, PromptEncoder& encoder,
                 TokenDocuments& documents) {
  const Words asked = prompt_of(line, object, task.prompt),
              completion = words_of(line, object.at(task.completion), task.completion);
  const std::string system = system_of(line, object);
  const auto *text = std::get_if<std::string>(&asked), *answer = std::get_if<std::string>(&completion);
  if (text != nullptr && answer != nullptr && system.empty()) return encoder.append(*text, *answer, documents);
  const Messages prompt = spoken_by("user", asked), messages = spoken_by("assistant", completion);
  check_turns(line, prompt, messages, task.completion);
  encoder.append(with_system(line, system, prompt), messages, documents);
}

void append_line(const JsonLine& line, std::string_view text, PromptEncoder& encoder,
                 TokenDocuments& documents) {
  const json object = line.parse(text);
  for (const char* list : conversations)
    if (object.contains(list)) {
      const Messages messages = messages_of(line, object.at(list), list);
      return encoder.append(Messages(), with_system(line, system_of(line, object), messages), documents);
    }
  for (const Task& task : tasks)
    if (object.contains(task.prompt) && object.contains(task.completion))
      return append_task(line, object, task, encoder, documents);
  line.refuse_line("the line is not a conversation");
}

}  // namespace

TokenDocuments chat_documents(std::string_view contents, PromptEncoder& encoder, const std::string& source) {
  TokenDocuments documents;
  for_each_line(contents, source, expected_line, [&](const JsonLine& line, std::string_view text) {
    line.read([&] { append_line(line, text, encoder, documents); });
  });
  return documents;
}

}  // namespace kformer::Impl::data
