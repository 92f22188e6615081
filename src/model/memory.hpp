// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/operands.hpp"
#include "kformer/memory/arena.hpp"

/// \file
/// Blocks of memory that models share and clear.

namespace kformer::Impl {

/// Sets the Views of the arena in `shared`, which is allocated if it is empty.
template <class Space>
void allocate_or_share(const Arena<Space>& arena, Ledger& ledger, MemoryClass memory_class,
                       const std::string& label, MemoryBlock<Space>& shared) {
  if (shared.bytes() == 0)
    shared = arena.allocate(ledger, memory_class, label);
  else
    arena.bind(shared);
}

/// Sets every number of a block to zero, for a public function without namespace.
/// \throws DimensionMismatch if the block was only counted
template <class C, class Exec>
void zero_numbers(const char* function, const Exec& exec,
                  const MemoryBlock<typename Exec::memory_space>& block) {
  require_allocated(function, "the gradients", block.data(), block.bytes());
  C* numbers = block.template at<C>(0);
  Kokkos::parallel_for(
      std::string("kformer::") + function, Kokkos::RangePolicy<Exec>(exec, 0, block.bytes() / sizeof(C)),
      KOKKOS_LAMBDA(std::size_t i) { numbers[i] = 0; });
}

}  // namespace kformer::Impl
