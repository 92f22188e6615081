// SPDX-License-Identifier: MIT
#pragma once

#include "common/fill.hpp"

namespace kformer::drivers {

/// Fills `count` elements with samples of the normal distribution of mean 0 and variance 1, by the transform of
/// Box and Muller (1958).
template <class T, class Exec>
void fill_normal(const Exec& exec, T* data, std::int64_t count, std::uint64_t seed) {
  using C = compute_t<T>;
  const std::uint64_t base = mix(seed);
  Kokkos::parallel_for(
      "kformer::drivers::fill_normal", Kokkos::RangePolicy<Exec>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        const std::uint64_t bits = mix(base + static_cast<std::uint64_t>(i));
        // Two uniform numbers; the first is never 0.
        const double radius = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;
        const double turn = static_cast<double>(bits & 0xffffffffu) * 0x1p-32;
        data[i] = T(static_cast<C>(Kokkos::sqrt(-2 * Kokkos::log(radius)) *
                                   Kokkos::cos(2 * Kokkos::numbers::pi * turn)));
      });
}

}  // namespace kformer::drivers
