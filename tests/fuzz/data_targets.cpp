// SPDX-License-Identifier: MIT
#include <array>
#include <memory>
#include <stdexcept>

#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "kformer/data/token_dataset.hpp"

namespace kformer::Testing {

namespace {

// Reads a file as a data set in every packing.
void read_dataset(DataFormat format, const std::filesystem::path& file) {
  static const std::unique_ptr<const Tokenizer> tokenizer = open_tokenizer(TokenizerFormat::byte, {});
  DataOptions options;
  options.format = format;
  options.files = {file};
  options.seq_len = 8;
  options.vocab_size = tokenizer->vocab_size();
  options.chat = ChatTemplate{};
  options.cache = "";
  for (const Packing packing : {Packing::stream, Packing::best_fit, Packing::pad}) {
    options.packing = packing;
    const auto data = TokenDataset::open(options, *tokenizer);
    TokenSequence sequence;
    for (std::int64_t i = 0; i < data.size(); ++i) {
      data.read(i, sequence);
      for (const std::int32_t id : sequence.ids)
        if (id < 0 || id >= options.vocab_size) throw std::logic_error("a token outside the vocabulary");
    }
  }
}

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

}  // namespace

std::span<const FuzzTarget> data_targets() {
  static constexpr std::array<FuzzTarget, 3> targets{
      {{"npy", read_npy}, {"chat_jsonl", read_chat}, {"text", read_text}}};
  return targets;
}

}  // namespace kformer::Testing
