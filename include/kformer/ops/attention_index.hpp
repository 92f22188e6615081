// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// \file
/// The arguments of attention functors: pairs of a query and a key, and the queries of a tile.
///
/// Queries and keys are counted as in the Views `q` and `k`, even if sequences are packed.

namespace kformer {

/// A pair of a query and a key.
struct AttentionIndex {
  std::int64_t batch;  ///< 0 ≤ batch < batches
  std::int64_t head;   ///< query head
  std::int64_t query;  ///< token of q
  std::int64_t key;    ///< token of k and v
};

/// Successive queries of one head: `first ≤ query < end`, at least one.
struct AttentionRows {
  std::int64_t batch;  ///< 0 ≤ batch < batches
  std::int64_t head;   ///< query head
  std::int64_t first;  ///< first token of q
  std::int64_t end;    ///< one past the last token of q
};

/// Successive keys: `first ≤ key < end`, none if `end ≤ first`. It may extend beyond the existing keys.
struct KeyRange {
  std::int64_t first;  ///< first token of k and v
  std::int64_t end;    ///< one past the last token of k and v
};

}  // namespace kformer
