// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>

/// \file
/// Which rank has which terms of a sum over micro-batches. Free of Kokkos.

namespace kformer {

/// Which leaves each of `ranks` ranks has: equal blocks in order, the last ones with fewer or none; or one for each in
/// turns, if they are summed over the ranks one by one.
struct LeafShares {
  std::int64_t leaves = 0;  ///< of all ranks
  int ranks = 1;            ///< how many there are
  bool in_turns = false;    ///< leaf i is of rank i mod n

  /// The most leaves of a rank: ⌈leaves / ranks⌉.
  std::int64_t each() const { return (leaves + ranks - 1) / ranks; }
  /// How many a rank has.
  std::int64_t count(int rank) const {
    if (in_turns) return (leaves - rank + ranks - 1) / ranks;
    return std::clamp<std::int64_t>(leaves - rank * each(), 0, each());
  }
  /// The k-th leaf of a rank.
  std::int64_t leaf(int rank, std::int64_t k) const { return in_turns ? k * ranks + rank : rank * each() + k; }
  /// Whether the sum has the bits of one rank, because each rank sums a node of the tree of `tree_sum`, or all ranks
  /// together do. Blocks: each has as many, a power of two, of which the last may lack some but not all. Turns: each
  /// has as many, and the ranks are a power of two, or each has one.
  bool keep_order() const {
    if (ranks == 1) return true;
    const auto is_power = [](std::int64_t n) { return (n & (n - 1)) == 0; };
    return in_turns ? leaves == ranks * each() && leaves > 0 && (each() == 1 || is_power(ranks))
                    : is_power(each()) && count(ranks - 1) > 0;
  }
};

}  // namespace kformer
