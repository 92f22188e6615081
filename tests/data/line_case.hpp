// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>

#include "data_case.hpp"
#include "error_text.hpp"
#include "kformer/data/preference_dataset.hpp"
#include "kformer/data/prompt_dataset.hpp"
#include "kformer/data/token_dataset.hpp"
#include "scratch_directory.hpp"

/// \file
/// Files with one JSON object in a line, as data sets.

namespace kformer::Testing {

/// A data set of one file, whose messages are written in chatml.
template <class Data, class Options>
class LineFile {
 public:
  LineFile(const std::string& name, const std::string& contents) {
    put_contents(m_folder / name, contents);
    options.files = {m_folder / name};
    options.chat = ChatTemplate{};
  }

  Data open(const Tokenizer& tokenizer) const { return Data::open(options, tokenizer); }

  /// What is wrong with the file, without its folder.
  std::string error(const Tokenizer& tokenizer) const {
    std::string text = file_error([&] { open(tokenizer); });
    const std::string path = m_folder.path().string() + "/";
    if (const auto at = text.find(path); at != std::string::npos) text.erase(at, path.size());
    return text;
  }

  Options options;

 private:
  ScratchDirectory m_folder;
};

struct Pairs : LineFile<PreferenceDataset, PreferenceDataOptions> {
  explicit Pairs(const std::string& contents) : LineFile("pairs.jsonl", contents) {}
};

struct Prompts : LineFile<PromptDataset, PromptDataOptions> {
  explicit Prompts(const std::string& contents) : LineFile("prompts.jsonl", contents) {}
};

struct Chats : LineFile<TokenDataset, DataOptions> {
  explicit Chats(const std::string& contents) : LineFile("chat.jsonl", contents) {
    options.format = DataFormat::chat;
    options.packing = Packing::pad;
    options.seq_len = 64;
    options.cache = "";
  }
};

inline PreferenceSequences pair_at(const PreferenceDataset& data, std::int64_t index) {
  PreferenceSequences pair;
  data.read(index, pair);
  return pair;
}

/// Both sequences as their tokens are spelled, the targets in brackets.
inline std::string marked_pair(const PreferenceSequences& pair, const Tokenizer& tokenizer) {
  return marked(pair.chosen, tokenizer) + " | " + marked(pair.rejected, tokenizer);
}

/// Of the only pair of a file.
inline std::string marked_line(const std::string& line, const Tokenizer& tokenizer) {
  const auto data = Pairs(line).open(tokenizer);
  BOOST_TEST(data.size() == 1);
  return marked_pair(pair_at(data, 0), tokenizer);
}

/// The only conversation of a file as its tokens are spelled, the targets in brackets.
inline std::string marked_chat(const std::string& line, ChatTemplate chat, const Tokenizer& tokenizer) {
  Chats chats(line);
  chats.options.chat = std::move(chat);
  chats.options.packing = Packing::stream;
  chats.options.seq_len = 1;
  chats.options.seq_len = chats.open(tokenizer).report().tokens;
  chats.options.packing = Packing::pad;
  const auto data = chats.open(tokenizer);
  BOOST_TEST(data.size() == 1);
  return marked(sequence_of(data, 0), tokenizer);
}

/// A prompt as its tokens are spelled.
inline std::string spelled(const Ids& ids, const Tokenizer& tokenizer) {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string bytes = tokenizer.token_bytes(id, false);
    text += bytes.empty() ? tokenizer.piece(id) : bytes;
  }
  return text;
}

}  // namespace kformer::Testing
