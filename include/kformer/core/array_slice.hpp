// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Macros.hpp>
#include <cstdint>

namespace kformer {

/// Rows or columns of an array that is divided: which of them a rank has.
struct ArraySlice {
  std::int64_t whole = 0;  ///< rows or columns of the whole array; 0: nothing is divided
  std::int64_t begin = 0;  ///< the first of this rank
  int axis = 0;            ///< 0: rows, or elements of a vector; 1: columns

  /// Whether this is a part.
  bool divides() const { return whole > 0; }
  /// Whether both are the same.
  bool operator==(const ArraySlice&) const = default;
};

/// The first of `whole` rows or columns that rank r of n has, where all have about as many: ⌊whole r / n⌋.
KOKKOS_FUNCTION constexpr std::int64_t slice_begin(std::int64_t whole, int rank, int ranks) {
  return whole * rank / ranks;
}

}  // namespace kformer
