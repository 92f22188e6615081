// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "kformer/data/token_dataset.hpp"

namespace kformer::Testing {

/// Reads a file as a data set in every packing.
inline void read_dataset(DataFormat format, const std::filesystem::path& file) {
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

}  // namespace kformer::Testing
