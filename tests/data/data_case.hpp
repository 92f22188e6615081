// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/data/token_dataset.hpp"
#include "scratch_directory.hpp"

/// \file
/// Small data sets.

namespace kformer::Testing {

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t bos = 256, eos = 257;  // of the tokenizer of bytes

inline std::unique_ptr<const Tokenizer> bytes() { return open_tokenizer(TokenizerFormat::byte, {}); }

/// Options of data in these files, without a cache.
inline DataOptions options_of(DataFormat format, std::vector<std::filesystem::path> files, Packing packing,
                              std::int64_t seq_len) {
  DataOptions options;
  options.format = format;
  options.files = std::move(files);
  options.packing = packing;
  options.seq_len = seq_len;
  options.cache = "";
  return options;
}

inline TokenSequence sequence_of(const TokenDataset& data, std::int64_t index) {
  TokenSequence sequence;
  data.read(index, sequence);
  return sequence;
}

/// A sequence as its tokens are spelled, with those in brackets that are targets.
inline std::string marked(const TokenSequence& sequence, const Tokenizer& tokenizer) {
  std::string text;
  bool learnt = false;
  for (std::size_t i = 0; i < sequence.ids.size(); ++i) {
    const bool is_target = i > 0 && sequence.targets[i - 1] == sequence.ids[i];
    if (is_target != learnt) text += is_target ? "[" : "]";
    learnt = is_target;
    const std::string bytes = tokenizer.token_bytes(sequence.ids[i], false);
    text += bytes.empty() ? tokenizer.piece(sequence.ids[i]) : bytes;
  }
  return text + (learnt ? "]" : "");
}

}  // namespace kformer::Testing
