// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "kformer/core/tensor_ref.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/parallel/leaf_shares.hpp"
#include "kformer/parallel/shards.hpp"

/// \file
/// Sums of gradients over micro-batches whose order does not depend on how many ranks there are.

namespace kformer {

/// Adds up what the same arrays hold one after another, in the order of `tree_sum` over these leaves. In memory there
/// are partial sums for at most ⌊log₂ leaves⌋ nodes of the tree, besides the arrays.
///
///     GradientTree<Exec> tree(gradients, leaves, ledger);
///     for (i = 0; i < leaves; ++i) {
///       …                       // the gradients are those of leaf i alone
///       tree.add(exec, i, leaves);
///     }                         // the gradients are the sum
///
/// Ranks that sum blocks of 2^b leaves each, in order, and then `Collectives::all_reduce`, have the bits of one rank that
/// sums all of them: a block is a node of the tree, and the sum over ranks is made in the rest of it. The last rank
/// may have fewer leaves.
///
/// Each leaf but the last costs a pass that copies its sum, and each but the first a pass that adds.
template <class Exec>
class GradientTree {
 public:
  using memory_space = typename Exec::memory_space;  ///< of the arrays

  /// Books and allocates memory.
  /// \param arrays      of float or double, without gaps; their memory must outlive this object
  /// \param most_leaves that are summed at a time
  /// \param ledger      the memory is of the class gradients
  /// \throws NotSupported if an array has another type, or `most_leaves` is less than 1
  /// \throws OutOfMemory with the ledger
  GradientTree(std::vector<TensorRef> arrays, std::int64_t most_leaves, Ledger& ledger);

  /// Adds leaf `i`, which the arrays hold. After the last one they hold the sum, else their content is used up. Some
  /// arrays may be ahead of others: each is summed for itself.
  /// \param exec   the instance
  /// \param i      0, 1, … in this order; 0 begins a new sum
  /// \param leaves of this sum, at most `most_leaves`
  /// \param some   the arrays whose leaf it is
  /// \throws NotSupported if the leaves of an array do not come in order, or are too many
  void add(const Exec& exec, std::int64_t i, std::int64_t leaves, SomeArrays some = {});

  /// How many partial sums there are at a time: ⌊log₂ leaves⌋.
  static std::int64_t partial_sums(std::int64_t leaves);

 private:
  void check(std::int64_t i, std::int64_t leaves, SomeArrays some) const;
  template <class F>
  void for_arrays(std::int64_t depth, SomeArrays some, F f) const;

  std::vector<TensorRef> m_arrays;
  std::int64_t m_most_leaves;
  std::vector<std::int64_t> m_next;    // leaf of each array
  std::vector<std::size_t> m_offsets;  // of the arrays in a partial sum
  std::size_t m_stride = 0;            // bytes of a partial sum
  MemoryBlock<memory_space> m_partial;
};

}  // namespace kformer
