// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

/// \file
/// Which tokens a rank has, where ranks divide those of each sequence.

namespace kformer::Impl {

/// Which tokens of a sequence a rank has: of 2n chunks, rank r of n has chunks r and 2n − 1 − r, one behind the other. With
/// a causal mask all ranks so have as many keys to look at (Grattafiori et al., The Llama 3 Herd of Models,
/// arXiv:2407.21783, section 3.3.2).
struct ContextSlice {
  std::int64_t chunk = 0;  ///< tokens
  int rank = 0, ranks = 1;

  /// The tokens of all ranks.
  KOKKOS_FUNCTION std::int64_t whole() const { return 2 * ranks * chunk; }
  /// The place in the sequence of the first token of this rank's chunk `half`, 0 or 1.
  std::int64_t first(int half) const { return first_of(rank, half); }
  /// The same of another rank.
  KOKKOS_FUNCTION std::int64_t first_of(int of_rank, int half) const {
    return chunk * (half == 0 ? of_rank : 2 * ranks - 1 - of_rank);
  }
  /// The place among the tokens of all sequences, which follow each other, of a row of a rank.
  KOKKOS_FUNCTION std::int64_t token_of(int of_rank, std::int64_t row) const {
    const std::int64_t sequence = row / (2 * chunk), place = row % (2 * chunk);
    return sequence * whole() + first_of(of_rank, static_cast<int>(place / chunk)) + place % chunk;
  }
  /// The rank that has a token.
  int owner(std::int64_t token) const {
    const auto number = static_cast<int>(token / chunk);
    return number < ranks ? number : 2 * ranks - 1 - number;
  }
};

/// Tokens of a sequence that follow each other in an array: up to two runs of those in the sequence.
struct TokenRuns {
  std::int64_t begin[2]{}, size[2]{};

  /// How many of them there are.
  KOKKOS_FUNCTION std::int64_t count() const { return size[0] + size[1]; }
  /// How many are in front of a token of the sequence, which may lie outside.
  KOKKOS_FUNCTION std::int64_t before(std::int64_t token) const {
    std::int64_t sum = 0;
    for (int i = 0; i < 2; ++i) sum += Kokkos::clamp<std::int64_t>(token - begin[i], std::int64_t(0), size[i]);
    return sum;
  }
};

}  // namespace kformer::Impl
