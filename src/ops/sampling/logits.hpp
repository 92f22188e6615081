// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

/// \file
/// Logits as numbers that can be compared and weighed.

namespace kformer::Impl {

/// Probabilities are multiples of 2⁻⁴⁰ of the largest: sums over a vocabulary are exact in 64 bits.
inline constexpr int weight_bits = 40;
inline constexpr std::int64_t largest_vocabulary = std::int64_t{1} << (63 - weight_bits);

/// A logit as the documentation counts it: NaN as −∞, +∞ as the greatest finite number.
template <class C>
KOKKOS_INLINE_FUNCTION C counted_logit(C x) {
  constexpr C greatest = Kokkos::Experimental::finite_max_v<C>;
  if (!(x >= -Kokkos::Experimental::infinity_v<C>)) return -Kokkos::Experimental::infinity_v<C>;
  return x > greatest ? greatest : x;
}

/// A counted logit of a token that occurred before. A finite one stays finite.
template <class C>
KOKKOS_INLINE_FUNCTION C penalised_logit(C x, C penalty) {
  constexpr C greatest = Kokkos::Experimental::finite_max_v<C>;
  if (x < -greatest) return x;
  return Kokkos::max(-greatest, Kokkos::min(greatest, x > C(0) ? x / penalty : x * penalty));
}

/// Bits that are ordered as counted logits are: 0 for −∞, more for every finite number, equal for equal ones.
template <class C>
KOKKOS_INLINE_FUNCTION std::uint64_t ordered_bits(C x) {
  using Bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits sign = Bits{1} << (sizeof(C) * 8 - 1);
  if (x == -Kokkos::Experimental::infinity_v<C>) return 0;
  const Bits bits = Kokkos::bit_cast<Bits>(x == C(0) ? C(0) : x);  // −0 equals 0
  return (bits & sign) != 0 ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | sign);
}

/// The logit with these ordered bits.
template <class C>
KOKKOS_INLINE_FUNCTION C logit_of_bits(std::uint64_t ordered) {
  using Bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits sign = Bits{1} << (sizeof(C) * 8 - 1);
  const auto bits = static_cast<Bits>(ordered);
  if (bits == 0) return -Kokkos::Experimental::infinity_v<C>;
  return Kokkos::bit_cast<C>((bits & sign) != 0 ? static_cast<Bits>(bits ^ sign) : static_cast<Bits>(~bits));
}

}  // namespace kformer::Impl
