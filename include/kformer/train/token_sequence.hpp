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

}  // namespace kformer
