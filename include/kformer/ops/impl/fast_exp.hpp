// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kformer::Impl {

/// exp(x) to one ulp in operations that compilers vectorise, where the C library's function is a call per
/// element. For x ≤ 88; 0 where exp(x) is below the smallest normal number, so exp(−inf) is exactly 0; exp(0)
/// is exactly 1; NaN stays NaN.
///
/// exp(x) = 2ⁿ·exp(r) with n = round(x / ln 2), |r| ≤ ln 2 / 2, and ln 2 in two parts so that n·ln2_high is
/// exact. exp(r) = 1 + r + r²·p(r), p a minimax polynomial for the relative error, which is 3e-9.
KOKKOS_INLINE_FUNCTION float polynomial_exp(float x) {
  constexpr float log2_e = 0x1.715476p+0f, ln2_high = 0x1.62ep-1f, ln2_low = 0x1.0bfbe8p-15f;
  constexpr float to_integer = 0x1.8p+23f;   // adding it leaves the nearest integer in the low mantissa bits
  constexpr float lowest = -0x1.5d589ep+6f;  // ln 2⁻¹²⁶
  // Choices are made with bit masks: GCC makes branches of conditional expressions, and a branch is not
  // vectorised. The lower bound keeps infinities, which would make NaN of the remainder, out of it.
  const std::uint32_t keep = std::uint32_t(x < lowest) - 1u;
  const float bounded = Kokkos::bit_cast<float>((Kokkos::bit_cast<std::uint32_t>(x) & keep) |
                                                (Kokkos::bit_cast<std::uint32_t>(lowest) & ~keep));
  const float shifted = bounded * log2_e + to_integer;
  const float n = shifted - to_integer;
  const float r = (bounded - n * ln2_high) - n * ln2_low;
  float p = 0x1.6a23cep-10f;
  p = p * r + 0x1.123a20p-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = (p * r * r + r) + 1.0f;
  const auto power = (Kokkos::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u;  // 2ⁿ
  return p * Kokkos::bit_cast<float>(power & keep);
}

/// exp for arguments up to 88 (float) in inner loops: a device has it in hardware, a host needs the polynomial.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
  KOKKOS_IF_ON_HOST((return polynomial_exp(x);))
}

/// The same in double, where the C library's accuracy is needed.
KOKKOS_INLINE_FUNCTION double fast_exp(double x) { return Kokkos::exp(x); }

}  // namespace kformer::Impl
