// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kformer/core/tensor_ref.hpp"

/// \file
/// The elements of the arrays of a model, divided among ranks. Free of messages.

namespace kformer {

/// Elements [begin, end) of an array, in row-major order.
struct ArrayRange {
  std::size_t array = 0;   ///< its place in a list
  std::int64_t begin = 0;  ///< the first element
  std::int64_t end = 0;    ///< behind the last element

  /// How many elements there are.
  std::int64_t size() const { return end - begin; }
  /// Whether both are the same.
  bool operator==(const ArrayRange&) const = default;
};

/// Arrays [begin, end) of a list, or all.
struct SomeArrays {
  std::size_t begin = 0;                           ///< the first
  std::size_t end = static_cast<std::size_t>(-1);  ///< behind the last
};

/// These elements of a dense array, as an array of rank 1.
TensorRef part_of(const TensorRef& array, const ArrayRange& range);

/// Which elements of some arrays belong to which rank. Each array is cut into pieces of equal length, of which its last
/// may be shorter. Of the pieces of each group of arrays every rank has a run; runs differ by at most one piece, and so
/// do the ranks in all.
class Shards {
 public:
  /// \param sizes  elements of each array
  /// \param piece  elements that stay together
  /// \param ranks  how many there are
  /// \param groups where each group of arrays ends, ascending to the number of arrays; none: all are one
  /// \throws NotSupported if `piece` or `ranks` is less than 1, a size is negative, or the groups do not end so
  Shards(std::span<const std::int64_t> sizes, std::int64_t piece, int ranks,
         std::span<const std::size_t> groups = {});

  /// How many ranks there are.
  int ranks() const { return static_cast<int>(m_ranges.size()); }
  /// What belongs to a rank: a range of each array, in their order; many are empty.
  const std::vector<ArrayRange>& of(int rank) const { return m_ranges[static_cast<std::size_t>(rank)]; }
  /// Where the pieces of each rank end, of which there are `pieces_end(ranks() - 1)` in all.
  std::int64_t pieces_end(int rank) const { return m_pieces_end[static_cast<std::size_t>(rank)]; }
  /// Where each piece is, in the order of the arrays, among those of rank 0, rank 1, …
  const std::vector<std::int64_t>& places() const { return m_places; }
  /// The elements of a rank.
  std::int64_t elements(int rank) const;

 private:
  std::vector<std::vector<ArrayRange>> m_ranges;
  std::vector<std::int64_t> m_pieces_end, m_places;
};

}  // namespace kformer
