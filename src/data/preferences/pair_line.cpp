// SPDX-License-Identifier: MIT
#include "data/preferences/pair_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace kformer::Impl::data {

const char* const expected_pair =
    R"(expected "chosen" and "rejected", or "preferred_output" and "non_preferred_output", with texts or messages, and the prompt as "prompt", "messages", "conversations", "question" or "instruction", or at the beginning of both)";

namespace {

using nlohmann::json;

/// How a pair calls its completions, and in which member it has its prompt if not in the line itself.
struct PairNames {
  const char *chosen, *rejected, *asked = nullptr;
};
constexpr PairNames pair_names[] = {{"chosen", "rejected"},
                                    {"preferred_output", "non_preferred_output", "input"}};

const PairNames& names_of_pair(const JsonLine& line, const json& object) {
  for (const PairNames& names : pair_names)
    if (object.contains(names.chosen) && object.contains(names.rejected)) return names;
  line.refuse_line("the line is not a pair");
}

/// Where a line says what the prompt is.
struct StatedPrompt {
  const json& object;
  std::string member;  ///< empty: nowhere
};

StatedPrompt stated_prompt(const json& object, const PairNames& names) {
  const bool within = names.asked != nullptr && object.contains(names.asked);
  const json& asked = within ? object.at(names.asked) : object;
  return {asked, prompt_member(asked)};
}

bool are_equal(const ChatMessage& a, const ChatMessage& b) {
  return a.role == b.role && a.content == b.content;
}

/// How many messages both lists begin with. Of each at least one remains.
std::ptrdiff_t common_messages(const Messages& a, const Messages& b) {
  const auto differ = std::ranges::mismatch(a, b, are_equal).in1 - a.begin();
  return std::min(differ, std::min(std::ssize(a), std::ssize(b)) - 1);
}

/// How many bytes both texts begin with, in whole characters. Of each at least one remains, and a space before the
/// difference (TRL, `extract_prompt`).
std::size_t common_bytes(std::string_view a, std::string_view b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  if (shorter == 0) return 0;
  const auto differ = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  std::size_t count = std::min(differ, shorter - 1);
  const auto is_continuation = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
  while (is_continuation(a[count])) --count;
  const bool space = differ < shorter && count > 0 && a[count - 1] == ' ';
  return space ? count - 1 : count;
}

/// Takes what both completions begin with as the prompt.
MessagePair with_prompt_in_both(const Messages& chosen, const Messages& rejected) {
  const auto common = common_messages(chosen, rejected);
  return {Messages(chosen.begin(), chosen.begin() + common), Messages(chosen.begin() + common, chosen.end()),
          Messages(rejected.begin() + common, rejected.end())};
}

TextPair with_prompt_in_both(const JsonLine& line, const PairNames& names, const std::string& system,
                             const std::string& chosen, const std::string& rejected) {
  if (!system.empty())
    line.refuse("\"system\" is beside two texts without a \"prompt\"; expected a \"prompt\", too");
  const std::size_t common = common_bytes(chosen, rejected);
  if (common == 0)
    line.refuse(fmt::format("there is no \"prompt\", and \"{}\" and \"{}\" do not begin with the same text",
                            names.chosen, names.rejected));
  return {chosen.substr(0, common), chosen.substr(common), rejected.substr(common)};
}

/// Whether `all` has the messages of `some`, in their order.
bool are_in(const Messages& all, const Messages& some) {
  auto next = some.begin();
  for (const ChatMessage& message : all)
    if (next != some.end() && are_equal(message, *next)) ++next;
  return next == some.end();
}

/// Completions that begin with an answer follow the prompt; others contain it, and only a "prompt" must agree.
MessagePair message_pair(const JsonLine& line, const PairNames& names, const StatedPrompt& stated,
                         Messages chosen, Messages rejected) {
  const auto prompt = [&] { return spoken_by("user", prompt_of(line, stated.object, stated.member)); };
  if (!stated.member.empty() && chosen.front().role == "assistant")
    return {prompt(), std::move(chosen), std::move(rejected)};
  MessagePair both = with_prompt_in_both(chosen, rejected);
  if (stated.member == "prompt" && !are_in(both.prompt, prompt()))
    line.refuse(fmt::format("\"{}\" and \"{}\" begin with other messages than the \"prompt\"", names.chosen,
                            names.rejected));
  if (both.prompt.empty())
    line.refuse(fmt::format("there is no \"prompt\", and \"{}\" and \"{}\" have no first messages in common",
                            names.chosen, names.rejected));
  return both;
}

}  // namespace

std::variant<TextPair, MessagePair> pair_of(const JsonLine& line, std::string_view text) {
  const json object = line.parse(text);
  const PairNames& names = names_of_pair(line, object);
  Words chosen = words_of(line, object.at(names.chosen), names.chosen),
        rejected = words_of(line, object.at(names.rejected), names.rejected);
  if (chosen.index() != rejected.index())
    line.refuse(
        fmt::format("one of \"{}\" and \"{}\" is a text, the other is not", names.chosen, names.rejected));
  const StatedPrompt stated = stated_prompt(object, names);
  const std::string system = system_of(line, object);
  if (const auto* better = std::get_if<std::string>(&chosen)) {
    const auto& worse = std::get<std::string>(rejected);
    if (stated.member.empty()) return with_prompt_in_both(line, names, system, *better, worse);
    const Words prompt = prompt_of(line, stated.object, stated.member);
    const auto* text_prompt = std::get_if<std::string>(&prompt);
    if (text_prompt != nullptr && system.empty()) return TextPair{*text_prompt, *better, worse};
  }
  MessagePair pair = message_pair(line, names, stated, spoken_by("assistant", std::move(chosen)),
                                  spoken_by("assistant", std::move(rejected)));
  check_turns(line, pair.prompt, pair.chosen, names.chosen);
  check_turns(line, pair.prompt, pair.rejected, names.rejected);
  pair.prompt = with_system(line, system, std::move(pair.prompt));
  return pair;
}

}  // namespace kformer::Impl::data
