// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <string>

#include "kformer/parallel/gradient_tree.hpp"

/// \file
/// Definitions of the members of GradientTree.

namespace kformer {

namespace Impl {

/// `to[i] = from[i]`, or with `add` `to[i] = from[i] + to[i]`.
template <class T, class Exec>
void copy_or_add(const Exec& exec, T* to, const T* from, std::int64_t count, bool add) {
  Kokkos::parallel_for(
      "kformer::GradientTree::add", Kokkos::RangePolicy<Exec>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) { to[i] = add ? from[i] + to[i] : from[i]; });
}

template <class Exec>
void copy_or_add(const Exec& exec, const TensorRef& array, void* to, const void* from, bool add) {
  if (array.dtype == DType::f64)
    copy_or_add(exec, static_cast<double*>(to), static_cast<const double*>(from), array.size(), add);
  else
    copy_or_add(exec, static_cast<float*>(to), static_cast<const float*>(from), array.size(), add);
}

}  // namespace Impl

template <class Exec>
std::int64_t GradientTree<Exec>::partial_sums(std::int64_t leaves) {
  return std::bit_width(static_cast<std::uint64_t>(leaves)) - 1;
}

template <class Exec>
GradientTree<Exec>::GradientTree(std::vector<TensorRef> arrays, std::int64_t most_leaves, Ledger& ledger)
    : m_arrays(std::move(arrays)), m_most_leaves(most_leaves), m_next(m_arrays.size()) {
  if (most_leaves < 1)
    throw NotSupported("kformer::GradientTree: most_leaves must be at least 1, got " +
                       std::to_string(most_leaves));
  MemoryLayout layout;
  for (const TensorRef& array : m_arrays) {
    if (array.dtype != DType::f32 && array.dtype != DType::f64)
      throw NotSupported(std::string("kformer::GradientTree: an array is of ") + to_string(array.dtype) +
                         "; expected the gradients, which are of f32 or f64");
    m_offsets.push_back(layout.reserve<std::byte>(array.size() * std::int64_t(size_of(array.dtype))));
  }
  m_stride = layout.bytes();
  const std::int64_t bytes = checked_product({partial_sums(most_leaves), static_cast<std::int64_t>(m_stride)});
  m_partial = ledger.allocate<memory_space>(MemoryClass::gradients, "GradientTree::partial",
                                            static_cast<std::size_t>(bytes));
}

template <class Exec>
template <class F>
void GradientTree<Exec>::for_arrays(std::int64_t depth, SomeArrays some, F f) const {
  std::byte* const partial = m_partial.data() + static_cast<std::size_t>(depth) * m_stride;
  for (std::size_t i = some.begin; i < std::min(some.end, m_arrays.size()); ++i)
    f(m_arrays[i], partial + m_offsets[i]);
}

template <class Exec>
void GradientTree<Exec>::check(std::int64_t i, std::int64_t leaves, SomeArrays some) const {
  for (std::size_t a = some.begin; a < std::min(some.end, m_arrays.size()); ++a) {
    const std::int64_t next = i == 0 ? 0 : m_next[a];
    if (i != next || i >= leaves || leaves > m_most_leaves)
      throw NotSupported("kformer::GradientTree::add: got leaf " + std::to_string(i) + " of " +
                         std::to_string(leaves) + "; expected leaf " + std::to_string(next) + " of at most " +
                         std::to_string(m_most_leaves));
  }
}

// There is a partial sum for each bit of the number of leaves before this one. A leaf completes a node for each low bit that
// is set, the last leaf all of them.
template <class Exec>
void GradientTree<Exec>::add(const Exec& exec, std::int64_t i, std::int64_t leaves, SomeArrays some) {
  check(i, leaves, some);
  const auto before = static_cast<std::uint64_t>(i);
  const bool last = i + 1 == leaves;
  std::int64_t depth = std::popcount(before);
  for (int nodes = last ? std::popcount(before) : std::countr_one(before); nodes > 0; --nodes)
    for_arrays(--depth, some, [&](const TensorRef& array, const std::byte* partial) {
      Impl::copy_or_add(exec, array, array.data, partial, true);
    });
  if (!last)
    for_arrays(depth, some, [&](const TensorRef& array, std::byte* partial) {
      Impl::copy_or_add(exec, array, partial, array.data, false);
    });
  for (std::size_t a = some.begin; a < std::min(some.end, m_arrays.size()); ++a) m_next[a] = i + 1;
}

}  // namespace kformer
