// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "data/lines/json_lines.hpp"
#include "kformer/text/chat_template.hpp"

/// \file
/// What the members of a line mean. Conversations, pairs and prompts have the same; all functions throw FileError.

namespace kformer::Impl::data {

using Messages = std::vector<ChatMessage>;

/// A text that is written as it is, or messages that a template writes.
using Words = std::variant<std::string, Messages>;

/// The messages of a list, or one message; at least one. ShareGPT's human and gpt become user and assistant,
/// developer becomes system, and parts of a message are joined.
/// \param name of the list, for error texts
Messages messages_of(const JsonLine& line, const nlohmann::json& value, const std::string& name);

/// A text, or messages.
Words words_of(const JsonLine& line, const nlohmann::json& value, const std::string& name);

/// The same as messages: a text is one message of `role`.
Messages spoken_by(const char* role, Words words);

/// The first of the members that say what a model is asked: prompt, messages, conversations, question, instruction;
/// empty if there is none.
std::string prompt_member(const nlohmann::json& object);

/// What such a member says. A question is a message of the user, and so is an instruction with its input.
Words prompt_of(const JsonLine& line, const nlohmann::json& object, const std::string& member);

/// The member "system"; empty if there is none.
std::string system_of(const JsonLine& line, const nlohmann::json& object);

/// Messages that begin with what `system` says, unless it is empty; a text then becomes a message of the user.
Messages with_system(const JsonLine& line, const std::string& system, Messages messages);
Words with_system(const JsonLine& line, const std::string& system, Words words);

/// Refuses a completion that does not answer to its prompt.
/// \param name of the completion, for error texts
void check_turns(const JsonLine& line, const Messages& prompt, const Messages& completion, const char* name);

}  // namespace kformer::Impl::data
