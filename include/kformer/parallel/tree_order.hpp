// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

/// \file
/// The binary tree in which sums over ranks and leaves are made.

namespace kformer {

/// The most terms that `tree_sum` takes.
inline constexpr std::int64_t most_tree_terms = std::int64_t(1) << 31;

/// The sum of `term(0)` … `term(count - 1)` in the binary tree over their indices:
///
///     V(0, k) = term(k)
///     V(j + 1, k) = V(j, 2k) + V(j, 2k + 1), or V(j, 2k) where the second node has no term
///
/// The result is the V(j, 0) that has all terms. A node with 2^j terms is summed alike wherever it is summed, so that
/// ranks that hold whole nodes and sum them in this tree get the bits of one rank that holds all terms.
///
/// \param count at least 1, at most `most_tree_terms`
/// \param term  returns the value of a term
template <class A, class Term>
KOKKOS_FUNCTION A tree_sum(std::int64_t count, const Term& term) {
  // A binary counter: one partial sum for each bit of the number of terms so far.
  A partial[32];
  int depth = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    A value = term(i);
    for (std::int64_t bits = i; bits & 1; bits >>= 1) value = partial[--depth] + value;
    partial[depth++] = value;
  }
  A sum = partial[--depth];
  while (depth > 0) sum = partial[--depth] + sum;
  return sum;
}

}  // namespace kformer
