// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

/// \file
/// What training reads: sequences of tokens with their targets. Free of Kokkos.

namespace kformer {

/// One row of a batch: tokens and, for each, the token that comes next.
struct TokenSequence {
  std::vector<std::int32_t> ids;      ///< tokens
  std::vector<std::int32_t> targets;  ///< as many; −100 (`CrossEntropyOptions::ignore_index`): no loss
  /// The first token of each packed document, ascending from 0; empty: there is one document. Attention does not cross
  /// a start, and positions count from it.
  std::vector<std::int32_t> starts;
};

/// What a step computes of its sequences, which may end before `seq_len`.
struct ComputedTokens {
  std::int64_t tokens = 0;  ///< with those that have no loss
  std::int64_t pairs = 0;   ///< sum over them of the length of their sequence: attention costs as much

  /// Adds sequences of so many tokens.
  void add(std::int64_t sequences, std::int64_t length) {
    tokens += sequences * length;
    pairs += sequences * length * length;
  }
  /// Adds those of another step.
  ComputedTokens& operator+=(const ComputedTokens& other) {
    tokens += other.tokens;
    pairs += other.pairs;
    return *this;
  }
  /// Of the sequence of a token, the mean over the tokens; 0 without any.
  double mean_length() const {
    return tokens > 0 ? static_cast<double>(pairs) / static_cast<double>(tokens) : 0;
  }
  /// Whether both are equal.
  bool operator==(const ComputedTokens&) const = default;
};

}  // namespace kformer
