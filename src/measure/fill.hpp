// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

#include "kformer/core/scalar.hpp"

namespace kformer::measure {

/// 64 well-mixed bits of `x` (the finalizer of SplitMix64, Steele et al. 2014).
KOKKOS_INLINE_FUNCTION std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Fills `count` elements with shift + scale · k/128, k uniform in [−128, 128). With `scale` a power of two and
/// a small `shift` every value is exact in float, bf16, f16 and double alike: the same inputs in every
/// precision, on every backend, from the same seed.
template <class T, class Exec>
void fill_random(const Exec& exec, T* data, std::int64_t count, std::uint64_t seed, double scale,
                 double shift = 0) {
  using C = compute_t<T>;
  const C unit = static_cast<C>(scale / 128), offset = static_cast<C>(shift);
  const std::uint64_t base = mix(seed);
  Kokkos::parallel_for(
      "kformer::measure::fill_random", Kokkos::RangePolicy<Exec>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        const auto k = static_cast<int>(mix(base + static_cast<std::uint64_t>(i)) >> 56) - 128;
        data[i] = T(offset + unit * static_cast<C>(k));
      });
}

/// Rows of an array, or some columns of all rows.
struct PartOfArray {
  std::int64_t first = 0;    ///< the place of the first element in the whole array
  std::int64_t columns = 1;  ///< of the part
  std::int64_t width = 1;    ///< columns of the whole array

  /// The place of element i of the part in the whole array.
  KOKKOS_FUNCTION std::int64_t place(std::int64_t i) const { return first + i / columns * width + i % columns; }
};

/// Fills `count` elements with samples of the normal distribution of mean 0 and standard deviation `deviation`, by
/// the transform of Box and Muller (1958). A part of an array gets what it would have in the whole one.
template <class T, class Exec>
void fill_normal(const Exec& exec, T* data, std::int64_t count, std::uint64_t seed, double deviation = 1,
                 const PartOfArray& part = {}) {
  using C = compute_t<T>;
  const std::uint64_t base = mix(seed);
  Kokkos::parallel_for(
      "kformer::measure::fill_normal", Kokkos::RangePolicy<Exec>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        const std::uint64_t bits = mix(base + static_cast<std::uint64_t>(part.place(i)));
        // Two uniform numbers; the first is never 0.
        const double radius = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;
        const double turn = static_cast<double>(bits & 0xffffffffu) * 0x1p-32;
        data[i] = T(static_cast<C>(deviation * Kokkos::sqrt(-2 * Kokkos::log(radius)) *
                                   Kokkos::cos(2 * Kokkos::numbers::pi * turn)));
      });
}

/// Multiplies `count` elements by 1 + size · r, r uniform in [−1, 1).
template <class T, class Exec>
void perturb(const Exec& exec, T* data, std::int64_t count, std::uint64_t seed, double size) {
  using C = compute_t<T>;
  const std::uint64_t base = mix(seed);
  Kokkos::parallel_for(
      "kformer::measure::perturb", Kokkos::RangePolicy<Exec>(exec, 0, count), KOKKOS_LAMBDA(std::int64_t i) {
        const auto r =
            static_cast<double>(static_cast<std::int64_t>(mix(base + static_cast<std::uint64_t>(i))));
        data[i] = T(static_cast<C>(data[i]) * static_cast<C>(1 + size * r * 0x1p-63));
      });
}

}  // namespace kformer::measure
