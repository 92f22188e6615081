// SPDX-License-Identifier: MIT
// Learning from preferences and from rewards: pairs and prompts as tokens, and rewards of completions by name and by a program.
// Checks which tokens of a pair are learnt, and what completions are worth. Uses the tokenizer of bytes, which needs no file.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "kformer/data/preference_dataset.hpp"
#include "kformer/data/prompt_dataset.hpp"
#include "kformer/data/rewards.hpp"

int main() {
  const std::filesystem::path pairs_file = "example_pairs.jsonl", prompts_file = "example_prompts.jsonl";
  std::ofstream(pairs_file) << R"({"prompt": "2+2=", "chosen": "4", "rejected": "5"})" << "\n";
  std::ofstream(prompts_file) << R"({"prompt": "1000+234=", "answer": 1234})" << "\n";
  const auto tokenizer = kformer::open_tokenizer(kformer::TokenizerFormat::byte, "");

  // [data]
  kformer::PreferenceDataOptions pair_options;
  pair_options.files = {pairs_file};
  const auto pairs = kformer::PreferenceDataset::open(pair_options, *tokenizer);
  kformer::PreferenceSequences pair;
  pairs.read(0, pair);  // two sequences with one prompt; targets are the completions

  kformer::PromptDataOptions prompt_options;
  prompt_options.files = {prompts_file};
  const auto prompts = kformer::PromptDataset::open(prompt_options, *tokenizer);
  // [data]

  // [rewards]
  // A program in any language; this one likes short completions.
  const std::string program = R"(while read -r line; do echo "{\"reward\": $((${#line} < 100))}"; done)";
  kformer::Rewards rewards(
      {{.kind = kformer::RewardKind::arithmetic},
       {.kind = kformer::RewardKind::regex, .weight = 0.5, .pattern = "^So it is .*[.]$"},
       {.kind = kformer::RewardKind::program, .weight = 0.25, .command = {"sh", "-c", program}}});
  const kformer::PromptSample& prompt = prompts.at(0);
  rewards.check(prompt);  // it has an answer
  const double good = rewards.score({.prompt = prompt, .completion = "So it is 1,234.", .tokens = 16}).total;
  const double bad = rewards.score({.prompt = prompt, .completion = "1235", .tokens = 5}).total;
  // [rewards]

  std::filesystem::remove(pairs_file);
  std::filesystem::remove(prompts_file);
  std::string learnt;
  for (const std::int32_t target : pair.chosen.targets)
    if (target >= 0) learnt += tokenizer->token_bytes(target, false);
  std::cout << "learnt: " << learnt << "; rewards: " << good << " and " << bad << "\n";
  return learnt == "4" && pair.prompt_tokens == 5 && good == 1.75 && bad == 0.25 ? 0 : 1;
}
