// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kformer/text/tokenizer.hpp"
#include "scratch_directory.hpp"

/// \file
/// Small files of tokenizers.

namespace kformer::Testing {

using Ids = std::vector<std::int32_t>;

/// The letter that byte-level vocabularies have for a byte.
inline std::string byte_letter(int byte) {
  const auto prints = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD); };
  int code = byte, others = 0;
  for (int b = 0; b < byte; ++b) others += prints(b) ? 0 : 1;
  if (!prints(byte)) code = 256 + others;
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::string json_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return quoted + "\"";
}

/// The members of a tokenizer.json, as JSON.
struct TokenizerJson {
  std::vector<std::string> tokens;  ///< by id
  std::string merges = "[]";
  std::string model_options;  ///< `,"ignore_merges":true`
  std::map<std::string, std::string> members;

  std::string text() const {
    std::string vocabulary;
    for (std::size_t id = 0; id < tokens.size(); ++id)
      vocabulary += (id > 0 ? "," : "") + json_text(tokens[id]) + ":" + std::to_string(id);
    std::string json = "{";
    for (const auto& [name, member] : members) json += json_text(name) + ":" + member + ",";
    return json + R"("model":{"type":"BPE","vocab":{)" + vocabulary + R"(},"merges":)" + merges +
           model_options + "}}";
  }
};

/// A byte-level tokenizer: every byte by its number, then `more`.
inline TokenizerJson byte_level(const std::vector<std::string>& more = {}) {
  TokenizerJson json;
  for (int byte = 0; byte < 256; ++byte) json.tokens.push_back(byte_letter(byte));
  json.tokens.insert(json.tokens.end(), more.begin(), more.end());
  json.members["pre_tokenizer"] = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  json.members["decoder"] = R"({"type":"ByteLevel"})";
  return json;
}

/// Opens a tokenizer.json with this text in a new folder, beside other files.
inline std::unique_ptr<const Tokenizer> open_json(const std::string& text,
                                                  const std::map<std::string, std::string>& others = {}) {
  const ScratchDirectory folder;
  put_contents(folder / "tokenizer.json", text);
  for (const auto& [name, contents] : others) put_contents(folder / name, contents);
  return open_tokenizer(TokenizerFormat::hf, folder.path());
}

/// A text of any characters, with much of what tokenizers treat in their own ways.
template <class Random>
std::string random_text(Random& random) {
  static const std::vector<std::string> parts{" ",
                                              "  ",
                                              "\n",
                                              "\t",
                                              "\r\n",
                                              "a",
                                              "Z",
                                              "the",
                                              "it's",
                                              "42",
                                              "\xC2\xB2",
                                              "\xC3\xA9",
                                              "e\xCC\x81",
                                              "\xE4\xBD\xA0",
                                              "\xF0\x9F\x98\x80",
                                              "\xC2\xA0",
                                              "{}",
                                              "...",
                                              "_",
                                              std::string(1, '\0'),
                                              "\xE2\x96\x81"};
  std::string text;
  for (auto count = random() % 30; count > 0; --count) text += parts[random() % parts.size()];
  return text;
}

}  // namespace kformer::Testing
