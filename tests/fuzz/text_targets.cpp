// SPDX-License-Identifier: MIT
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/utf8.hpp"
#include "kformer/text/chat_template.hpp"
#include "kformer/text/gguf_vocabulary.hpp"
#include "kformer/text/tokenizer.hpp"
#include "text/base/byte_names.hpp"

namespace kformer::Testing {

namespace {

// Texts with what tokenizers treat in their own ways: spaces, digits, accents, bytes that are no UTF-8.
void tokenise(const Tokenizer& tokenizer) {
  for (const std::string_view text :
       {std::string_view("Once  upon 123\t a time\n"),
        std::string_view("\xC3\xA9\xE2\x82\xAC <|x|><s>\xFF\xC3"), std::string_view("a\0b", 3)}) {
    const auto ids = tokenizer.encode_with_special(text);
    for (const std::int32_t id : ids)
      if (id < 0 || id >= tokenizer.vocab_size()) throw std::logic_error("a token outside the vocabulary");
    tokenizer.decode(ids);
    for (std::int32_t id = 0; id < std::min<std::int64_t>(tokenizer.vocab_size(), 8); ++id) tokenizer.piece(id);
  }
}

void read_tokenizer_json(std::string_view bytes) {
  static InputFolder folder("tokenizer.json");
  folder.put(bytes);
  tokenise(*open_tokenizer(TokenizerFormat::hf, folder.folder()));
}

constexpr std::string_view small_tokenizer =
    R"({"added_tokens": [{"id": 0, "content": "<s>", "special": true}], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "post_processor": null, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]}})";

// A file that stands beside a tokenizer and says which of its tokens begin and end a text.
void read_beside_tokenizer(const InputFolder& folder, std::string_view bytes) {
  folder.put(bytes);
  const auto opened = open_tokenizer(TokenizerFormat::hf, folder.folder());
  tokenise(*opened);
  if (!opened->chat_template().empty()) ChatTemplate::recognise(opened->chat_template());
}

void read_tokenizer_config(std::string_view bytes) {
  static const InputFolder folder("tokenizer_config.json", {{"tokenizer.json", small_tokenizer}});
  read_beside_tokenizer(folder, bytes);
}

void read_generation_config(std::string_view bytes) {
  static const InputFolder folder("generation_config.json", {{"tokenizer.json", small_tokenizer}});
  read_beside_tokenizer(folder, bytes);
}

void read_sentencepiece(std::string_view bytes) {
  static InputFolder folder("tokenizer.model");
  tokenise(*open_tokenizer(TokenizerFormat::sentencepiece, folder.put(bytes)));
}

void read_gguf_vocabulary(std::string_view bytes) {
  static InputFolder folder("model.gguf");
  tokenise(*open_tokenizer(TokenizerFormat::gguf, folder.put(bytes)));
}

void read_chat_template(std::string_view bytes) {
  const std::vector<ChatMessage> messages{{"system", "Be brief."},
                                          {"user", "<|im_end|>"},
                                          {"assistant", ""},
                                          {"user", std::string(bytes.substr(0, 64))}};
  const auto chat = ChatTemplate::recognise(bytes);
  apply_chat(chat, messages);
  for (const ChatPiece& piece : chat_prompt(chat, messages))
    if (piece.text.empty()) throw std::logic_error("an empty piece");
}

// Letters of all bytes and a few merges.
GgufVocabulary byte_level(const std::string& pre) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = pre;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.tokens.emplace_back(Impl::tokenizers::letter_of_byte(static_cast<unsigned char>(byte)));
  for (const auto& [left, right] : {std::pair("a", "b"), {"ab", "c"}, {"\xC4\xA0", "a"}, {"1", "2"}}) {
    vocabulary.merges.push_back(std::string(left) + " " + right);
    vocabulary.tokens.push_back(std::string(left) + right);
  }
  return vocabulary;
}

// Bytes for what no piece has.
GgufVocabulary scored() {
  constexpr std::int64_t normal = 1, unknown = 2, byte_type = 6;
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.unk = 0;
  const auto add = [&](std::string piece, std::int64_t type) {
    vocabulary.tokens.push_back(std::move(piece));
    vocabulary.types.push_back(type);
  };
  add("<unk>", unknown);
  for (int byte = 0; byte < 256; ++byte)
    add(Impl::tokenizers::name_of_byte(static_cast<unsigned char>(byte)), byte_type);
  for (const char* piece : {"\xE2\x96\x81", "a", "b", "ab", "ba", "\xC3\xA9"}) add(piece, normal);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) vocabulary.scores.push_back(static_cast<float>(i));
  return vocabulary;
}

// Texts in all tokenizers that split or merge in their own way. What is generated token by token is the same text.
void read_tokenised_text(std::string_view bytes) {
  static const auto tokenizers = [] {
    std::vector<std::unique_ptr<const Tokenizer>> all;
    for (const char* pre : {"default", "gpt-2", "llama-bpe", "qwen2", "smollm", "dbrx"})
      all.push_back(make_tokenizer(byte_level(pre), pre));
    all.push_back(make_tokenizer(scored(), "llama"));
    return all;
  }();
  for (const auto& tokenizer : tokenizers) {
    const auto ids = tokenizer->encode(bytes);
    std::string generated;
    TokenStream stream(*tokenizer);
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) throw std::logic_error("a token outside the vocabulary");
      generated += stream.push(id);
    }
    const std::string text = tokenizer->decode(ids);
    if (generated + stream.finish() != text) throw std::logic_error("a stream of tokens with another text");
    if (tokenizer != tokenizers.back() && text != Impl::repair_utf8(bytes))
      throw std::logic_error("tokens of another text");
  }
}

}  // namespace

std::span<const FuzzTarget> text_targets() {
  static constexpr std::array<FuzzTarget, 7> targets{{{"tokenizer_json", read_tokenizer_json},
                                                      {"tokenizer_config", read_tokenizer_config},
                                                      {"generation_config", read_generation_config},
                                                      {"sentencepiece", read_sentencepiece},
                                                      {"gguf_vocabulary", read_gguf_vocabulary},
                                                      {"tokenised_text", read_tokenised_text},
                                                      {"chat_template", read_chat_template}}};
  return targets;
}

}  // namespace kformer::Testing
