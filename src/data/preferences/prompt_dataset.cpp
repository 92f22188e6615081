// SPDX-License-Identifier: MIT
#include "kformer/data/prompt_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "data/lines/line_members.hpp"
#include "data/prompt_encoder.hpp"
#include "io/content_hash.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer {

using namespace Impl::data;
using nlohmann::json;

namespace {

constexpr const char* expected_prompt =
    R"(expected "prompt" with a text or a list of messages, or "messages", "conversations", "question" or "instruction")";

/// The text that begins at `begin` with a quotation mark, with both of its marks.
std::string_view quoted_at(std::string_view line, std::size_t begin) {
  std::size_t end = begin + 1;
  while (line[end] != '"') end += line[end] == '\\' ? 2 : 1;
  return line.substr(begin, end + 1 - begin);
}

/// The members of an object that are numbers, as the line spells them: a double has neither the last digit of 1.50
/// nor all of thirty.
/// \param line is JSON
std::map<std::string, std::string> spelled_numbers(std::string_view line) {
  std::map<std::string, std::string> numbers;
  std::string_view name;
  int depth = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (c == '"') {
      name = quoted_at(line, at);
      at += name.size() - 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':' && depth == 1) {
      const std::string_view value = line.substr(line.find_first_not_of(" \t\r", at + 1));
      const std::string_view number = value.substr(0, value.find_first_not_of("+-.0123456789eE"));
      if (!number.empty()) numbers[json::parse(name).get<std::string>()] = number;
    }
  }
  return numbers;
}

PromptSample sample_of(const JsonLine& line, std::string_view text, PromptEncoder& encoder) {
  const json object = line.parse(text);
  const std::string member = prompt_member(object);
  if (member.empty()) line.refuse_line("the line has no prompt");
  const Words prompt = with_system(line, system_of(line, object), prompt_of(line, object, member));
  PromptSample sample;
  sample.ids = std::visit([&](const auto& words) { return encoder.prompt(words); }, prompt);
  if (sample.ids.empty()) line.refuse("the prompt is empty, and the tokenizer has no beginning-of-text token");
  encoder.check(sample.ids, line);
  sample.prompt = object.at(member).dump();
  const auto numbers = spelled_numbers(text);
  for (const auto& [name, value] : object.items())
    if (name != member) sample.fields.emplace(name, value.is_number() ? numbers.at(name) : value.dump());
  return sample;
}

}  // namespace

PromptDataset PromptDataset::open(const PromptDataOptions& options, const Tokenizer& tokenizer) {
  if (options.files.empty()) throw Error("kformer::PromptDataset::open: there are no files of prompts");
  if (options.max_tokens < 0)
    throw Error(
        fmt::format("kformer::PromptDataset::open: max_tokens is {}; expected at least 1, or 0 for no limit",
                    options.max_tokens));
  PromptEncoder encoder(tokenizer, {options.chat, options.bos, options.add_bos, options.vocab_size});
  PromptDataset prompts;
  PromptReport& report = prompts.m_report;
  for (const std::filesystem::path& path : options.files) {
    const Impl::MappedFile file = Impl::map_file(path);
    const std::string_view contents(reinterpret_cast<const char*>(file.start.get()), file.size);
    for_each_line(contents, path.string(), expected_prompt, [&](const JsonLine& line, std::string_view text) {
      line.read([&] {
        PromptSample sample = sample_of(line, text, encoder);
        const std::int64_t tokens = std::ssize(sample.ids);
        if (options.max_tokens > 0 && tokens > options.max_tokens) {
          ++report.too_long;
          return;
        }
        report.tokens += tokens;
        report.longest = std::max(report.longest, tokens);
        prompts.m_samples.push_back(std::move(sample));
      });
    });
  }
  report.prompts = prompts.size();
  if (report.prompts == 0)
    throw FileError(fmt::format("'{}'{}: there are no prompts; {} are too long", options.files.front().string(),
                                options.files.size() > 1 ? " and others" : "", report.too_long));
  return prompts;
}

const PromptSample& PromptDataset::at(std::int64_t index) const {
  if (index < 0 || index >= size())
    throw Error(fmt::format("kformer::PromptDataset::at: prompt {} of {}", index, size()));
  return m_samples[static_cast<std::size_t>(index)];
}

std::string PromptDataset::fingerprint() const {
  std::string all;
  for (const PromptSample& sample : m_samples) {
    all += Impl::hash_of(std::as_bytes(std::span(sample.ids))).text() + Impl::hash_of(sample.prompt).text();
    for (const auto& [name, value] : sample.fields)
      all += Impl::hash_of(name).text() + Impl::hash_of(value).text();
    all += '\n';
  }
  return Impl::hash_of(all).text();
}

}  // namespace kformer
