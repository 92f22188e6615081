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
  std::vector<std::int32_t>
      starts;  ///< the first token of each packed document, ascending from 0; empty: one. Attention
               ///< does not cross a start, and positions count from it.
};

}  // namespace kformer
