// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include "kformer/core/scalar.hpp"

/// \file
/// Adapters that become part of their weight.

namespace kformer::Impl {

/// The gain of rows without magnitudes.
struct UnitGain {
  KOKKOS_INLINE_FUNCTION float operator()(std::size_t) const { return 1; }
};

/// W = gain ⊙ (W + scale · B A), rounded once; (out, in), (out, rank) and (rank, in), with the gain of a row a function or
/// View. Once for a model, so it need not be fast.
template <class Exec, class W, class B, class A, class G = UnitGain>
void add_low_rank(const char* label, const Exec& exec, const W& w, const B& b, const A& a, double factor,
                  const G& gain = {}) {
  using T = typename W::non_const_value_type;
  using C = compute_t<T>;
  const std::size_t rank = b.extent(1), columns = w.extent(1);
  const C scale = static_cast<C>(factor);
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec>(exec, 0, w.extent(0) * columns), KOKKOS_LAMBDA(std::size_t index) {
        const std::size_t o = index / columns, i = index % columns;
        C sum = 0;
        for (std::size_t k = 0; k < rank; ++k) sum += static_cast<C>(b(o, k)) * static_cast<C>(a(k, i));
        w(o, i) = T(static_cast<C>(gain(o)) * (static_cast<C>(w(o, i)) + scale * sum));
      });
}

}  // namespace kformer::Impl
