// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// \file
/// Packs items of different lengths into bins of one capacity.

namespace kformer {

/// Which items share a bin. Bin b holds `items[first[b]]` to `items[first[b + 1] - 1]`.
struct Bins {
  std::vector<std::int64_t> items;     ///< indices; ascending within a bin
  std::vector<std::int64_t> first{0};  ///< bins + 1; bins are in the order of their first items

  /// The number of bins.
  std::int64_t size() const { return static_cast<std::int64_t>(first.size()) - 1; }
};

/// Packs every item once, longest first, each into the fullest bin that has room for it: best-fit decreasing. It
/// takes at most 11/9 of the fewest bins, + 4 (Johnson, Demers, Ullman, Garey and Graham 1974, SIAM J. Comput. 3(4),
/// doi:10.1137/0203025). Items of equal length are taken in their order, so the result depends on nothing else.
/// Time O(n log capacity).
/// \param lengths  of the items
/// \param capacity of a bin
/// \throws Error naming an item whose length is not in 1 … capacity
Bins best_fit_decreasing(std::span<const std::int64_t> lengths, std::int64_t capacity);

/// A number of bins that no packing can do without (Martello & Toth, Discrete Appl. Math. 28(1), 1990, bound L2): items
/// longer than half a bin never share one, and those that fit beside them fill at most the room that is left there.
/// Time O(n + capacity).
/// \param lengths  of the items
/// \param capacity of a bin
/// \throws Error naming an item whose length is not in 1 … capacity
std::int64_t least_bins(std::span<const std::int64_t> lengths, std::int64_t capacity);

}  // namespace kformer
