// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kformer/text/gguf_vocabulary.hpp"
#include "text/tokenizer_files.hpp"

/// \file
/// Small tokenizers for conversations.

namespace kformer::Testing {

inline const std::vector<std::string> control_tokens{"<|im_start|>", "<|im_end|>", "<|start_header_id|>",
                                                     "<|end_header_id|>", "<|eot_id|>"};

/// Bytes and the control tokens of chatml and llama3; "ab" is one token.
inline std::unique_ptr<const Tokenizer> chat_tokenizer() {
  auto more = control_tokens;
  more.push_back("ab");
  TokenizerJson json = byte_level(more);
  json.merges = R"([["a","b"]])";
  std::string added;
  for (std::size_t i = 0; i < control_tokens.size(); ++i)
    added += (i > 0 ? "," : "") + std::string(R"({"special":true,"normalized":false,"id":)") +
             std::to_string(256 + i) + R"(,"content":")" + control_tokens[i] + "\"}";
  json.members["added_tokens"] = "[" + added + "]";
  return open_json(json.text());
}

/// Bytes and the control tokens of chatml, 256 and 257, as a file may declare them.
inline std::unique_ptr<const Tokenizer> chatml_tokenizer(bool special, bool normalized) {
  TokenizerJson json = byte_level({"<|im_start|>", "<|im_end|>"});
  const auto added = [&](std::size_t id) {
    return R"({"id":)" + std::to_string(id) + R"(,"special":)" + (special ? "true" : "false") +
           R"(,"normalized":)" + (normalized ? "true" : "false") + R"(,"content":")" + json.tokens.at(id) +
           "\"}";
  };
  json.members["added_tokens"] = "[" + added(256) + "," + added(257) + "]";
  return open_json(json.text());
}

/// Like Llama 2: a space before every text, and a token for each character.
inline std::unique_ptr<const Tokenizer> spaced_tokenizer() {
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "\xE2\x96\x81"};
  vocabulary.types = {2, 3, 3, 6, 1};
  for (char c = '!'; c <= '~'; ++c) vocabulary.tokens.push_back(std::string(1, c));
  vocabulary.types.resize(vocabulary.tokens.size(), 1);
  vocabulary.scores.assign(vocabulary.tokens.size(), 0);
  vocabulary.unk = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  return make_tokenizer(vocabulary, "spaced");
}

/// As llama tokenizers are published in tokenizer.json: a space before the first text, or before all.
inline std::unique_ptr<const Tokenizer> metaspace_tokenizer(const std::string& scheme) {
  TokenizerJson json;
  json.model_options = R"(,"byte_fallback":true,"unk_token":"<unk>")";
  json.tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "\xE2\x96\x81"};
  for (char c = '!'; c <= '~'; ++c) json.tokens.push_back(std::string(1, c));
  json.tokens.push_back("\xE2\x96\x81H");
  json.merges = "[[\"\xE2\x96\x81\",\"H\"]]";
  json.members["added_tokens"] = R"([{"id":1,"content":"<s>","special":true,"normalized":false},)"
                                 R"({"id":2,"content":"</s>","special":true,"normalized":false}])";
  json.members["pre_tokenizer"] =
      R"({"type":"Metaspace","replacement":"\u2581","split":false,"prepend_scheme":")" + scheme + "\"}";
  json.members["decoder"] = R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":")" + scheme + "\"}";
  return open_json(json.text(), {{"tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})"}});
}

}  // namespace kformer::Testing
