// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

namespace kformer::Impl {

/// c·tanh(s/c), or s where there is no cap.
template <class C>
struct SoftCap {
  C cap = 0;  ///< 0: none

  KOKKOS_FUNCTION C apply(C s) const { return cap > C(0) ? cap * Kokkos::tanh(s / cap) : s; }
  KOKKOS_FUNCTION C derivative(C s) const {
    if (!(cap > C(0))) return C(1);
    const C t = Kokkos::tanh(s / cap);
    return C(1) - t * t;
  }
};

/// The same without a cap, for loops that a test per element would keep from vectorising.
template <class C>
struct NoCap {
  KOKKOS_FUNCTION C apply(C s) const { return s; }
  KOKKOS_FUNCTION C derivative(C) const { return C(1); }
};

}  // namespace kformer::Impl
