// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/rewards/last_number.hpp"
#include "data/rewards/program_lines.hpp"
#include "data/rewards/search.hpp"
#include "data/token_cache.hpp"
#include "data/token_store.hpp"
#include "fuzz/dataset.hpp"
#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "kformer/core/error.hpp"
#include "kformer/data/preference_dataset.hpp"
#include "kformer/data/prompt_dataset.hpp"

namespace kformer::Testing {

namespace {

namespace data = Impl::data;

void read_npy(std::string_view bytes) {
  static InputFolder folder("tokens.npy");
  read_dataset(DataFormat::tokens, folder.put(bytes));
}

void read_chat(std::string_view bytes) {
  static InputFolder folder("chat.jsonl");
  read_dataset(DataFormat::chat, folder.put(bytes));
}

void read_text(std::string_view bytes) {
  static InputFolder folder("text.txt");
  read_dataset(DataFormat::text, folder.put(bytes));
}

void read_preferences(std::string_view bytes) {
  static InputFolder folder("pairs.jsonl");
  static const std::unique_ptr<const Tokenizer> tokenizer = open_tokenizer(TokenizerFormat::byte, {});
  PreferenceDataOptions options;
  options.files = {folder.put(bytes)};
  options.chat = ChatTemplate{};
  options.vocab_size = tokenizer->vocab_size();
  PreferenceSequences pair;
  for (int round = 0; round < 2; ++round) {
    const auto data = PreferenceDataset::open(options, *tokenizer);
    for (std::int64_t i = 0; i < data.size(); ++i) {
      data.read(i, pair);
      for (const TokenSequence* sequence : {&pair.chosen, &pair.rejected}) {
        const auto targets = std::ranges::count_if(sequence->targets, [](std::int32_t id) { return id >= 0; });
        if (targets == 0 || std::ssize(sequence->ids) > options.max_tokens || pair.prompt_tokens < 1)
          throw std::logic_error("a sequence without a prompt or a target, or that is too long");
      }
    }
    options.max_tokens = std::max<std::int64_t>(2, data.report().longest - 1);  // the longest will be cut
  }
}

void read_prompts(std::string_view bytes) {
  static InputFolder folder("prompts.jsonl");
  static const std::unique_ptr<const Tokenizer> tokenizer = open_tokenizer(TokenizerFormat::byte, {});
  PromptDataOptions options;
  options.files = {folder.put(bytes)};
  options.chat = ChatTemplate{};
  const auto data = PromptDataset::open(options, *tokenizer);
  for (std::int64_t i = 0; i < data.size(); ++i)
    if (data.at(i).ids.empty()) throw std::logic_error("a prompt without a token");
}

// Completions are foreign bytes, too.
void read_completion(std::string_view bytes) {
  static const auto pattern = data::Search::pattern("(?s)^<think>.*?</think>\\s*\\w+$", true);
  static const auto text = data::Search::text("\xC3\x89t\xC3\xA9", false);
  pattern.is_in(bytes);
  text.is_in(bytes);
  const auto number = data::last_number(bytes);
  if (!number) return;
  const std::string& digits = number->digits;
  const std::string again =
      (number->negative ? "-" : "") + (digits.empty() ? "0" : digits) + "e" + std::to_string(number->exponent);
  if (data::last_number(again) != number)
    throw std::logic_error("a number that is another one when it is written");
}

// What a reward program answers, and what it would be asked of a completion with these bytes.
void read_reward(std::string_view bytes) {
  const PromptSample prompt{{0}, "\"2+2\"", {{"answer", "4"}}};
  const std::string question = data::program_question({prompt, bytes, 1});
  if (question.find('\n') != question.npos) throw std::logic_error("a question of two lines");
  const auto reward = data::program_reward(std::string(bytes));
  if (!reward) throw RewardError("it is no reward");
  if (std::isinf(*reward)) throw std::logic_error("an infinite reward");
}

// A file of the cache, with the checksum of what it says: without it nothing behind the header would be read.
void read_cached(std::string_view bytes) {
  constexpr std::size_t checksum = 24, summed = 40;  // where a file has its checksum, and what it is of
  static const Impl::ContentHash key;
  static const InputFolder folder(key.text() + ".tokens");
  std::string file(bytes);
  if (file.size() >= summed) {
    const auto hash = Impl::hash_of(std::string_view(file).substr(summed));
    std::memcpy(file.data() + checksum, &hash, sizeof hash);
  }
  folder.put(file);
  const auto refuse = []() -> data::TokenDocuments { throw FileError("the file would be made anew"); };
  const auto found = data::TokenCache(folder.folder()).get(key, "input", refuse);
  check_ids(found.shard, 0);
  data::TokenStore store;
  store.add(found.shard);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(store.size()));
  store.ids(0, ids);
  store.targets(0, ids);
  store.learnt(0, store.size());
}

}  // namespace

std::span<const FuzzTarget> data_targets() {
  static constexpr std::array<FuzzTarget, 8> targets{{{"npy", read_npy},
                                                      {"chat_jsonl", read_chat},
                                                      {"preference_jsonl", read_preferences},
                                                      {"prompt_jsonl", read_prompts},
                                                      {"completion", read_completion},
                                                      {"reward_answer", read_reward},
                                                      {"text", read_text},
                                                      {"token_cache", read_cached}}};
  return targets;
}

}  // namespace kformer::Testing
