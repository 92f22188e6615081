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

/// Sets every number in so many bytes to zero, for a public function without namespace.
/// \throws DimensionMismatch if the memory was only counted
template <class C, class Exec>
void zero_numbers(const char* function, const Exec& exec, C* numbers, std::size_t bytes) {
  require_allocated(function, "the gradients", numbers, bytes);
  Kokkos::parallel_for(
      std::string("kformer::") + function, Kokkos::RangePolicy<Exec>(exec, 0, bytes / sizeof(C)),
      KOKKOS_LAMBDA(std::size_t i) { numbers[i] = 0; });
}

/// `to[i] += from[i]`, for a public function without namespace.
template <class Exec, class Vector>
void add_numbers(const char* function, const Exec& exec, const Vector& to, const Vector& from) {
  Kokkos::parallel_for(
      std::string("kformer::") + function, Kokkos::RangePolicy<Exec>(exec, 0, to.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) { to(i) += from(i); });
}

}  // namespace kformer::Impl
