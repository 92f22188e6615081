// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/data/token_dataset.hpp"

namespace kformer::drivers {

/// What a data set consists of, a line per fact.
std::string report_text(const TokenDataset& data, const DataOptions& options);

/// How many documents there are of what length, a line per power of two.
std::string lengths_text(const DataReport& report);

/// A sequence as text: the documents, and in each on lines that begin with `>` what is learnt, on lines that begin
/// with `|` the rest.
/// \param tokens    in its first places; the others are padding
/// \param tokenizer null: tokens are shown as numbers
std::string sequence_text(const TokenSequence& sequence, std::int64_t index, std::int64_t tokens,
                          const Tokenizer* tokenizer);

}  // namespace kformer::drivers
