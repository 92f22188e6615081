// SPDX-License-Identifier: MIT
// Training data: a text and generated tasks as sequences of tokens. Checks that the sequences hold the text, and that only
// answers are learnt. Uses the tokenizer of bytes, which needs no file.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "kformer/data/token_dataset.hpp"

namespace {

// What a model reads and, of the same places, what it learns to say.
std::string shown(const kformer::TokenSequence& sequence, const kformer::Tokenizer& tokenizer) {
  std::vector<std::int32_t> learnt;
  for (const std::int32_t target : sequence.targets)
    if (target >= 0) learnt.push_back(target);
  return tokenizer.decode(sequence.ids) + " -> " + tokenizer.decode(learnt);
}

}  // namespace

int main() {
  const std::filesystem::path file = "example_data.txt";
  std::ofstream(file) << "It is a truth universally acknowledged";

  // [text]
  // Of a published model: open_tokenizer(kformer::TokenizerFormat::hf, "Llama-3.2-1B").
  const auto tokenizer = kformer::open_tokenizer(kformer::TokenizerFormat::byte, "");
  kformer::DataOptions options;
  options.files = {file};
  options.packing = kformer::Packing::stream;
  options.seq_len = 16;
  options.cache = "";  // without it, tokens are kept in the user's cache
  const auto data = kformer::TokenDataset::open(options, *tokenizer);

  kformer::TokenSequence sequence;
  data.read(0, sequence);  // any index, from any thread
  // [text]
  std::filesystem::remove(file);
  const std::string first = shown(sequence, *tokenizer);
  std::cout << data.report().tokens << " tokens, " << data.size() << " sequences\n" << first << "\n";

  // [synthetic]
  kformer::DataOptions task;
  task.format = kformer::DataFormat::synthetic;
  task.synthetic = {.task = kformer::SyntheticTask::reverse, .samples = 100, .max_length = 5, .seed = 1};
  task.packing = kformer::Packing::pad;
  task.seq_len = 16;
  const auto samples = kformer::TokenDataset::open(task);
  samples.read(7, sequence);
  // [synthetic]
  const auto sample = kformer::synthetic_sample(task.synthetic, 7);
  std::int64_t learnt = 0;
  for (const std::int32_t target : sequence.targets) learnt += target >= 0 ? 1 : 0;
  std::cout << sample.prompt << sample.answer << ": " << learnt << " tokens are learnt\n";

  const bool good = first == "It is a truth u -> It is a truth un" && samples.size() == 100 &&
                    learnt == static_cast<std::int64_t>(sample.answer.size()) + 1;  // and the end of the text
  return good ? 0 : 1;
}
