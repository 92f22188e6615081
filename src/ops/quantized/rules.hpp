// SPDX-License-Identifier: MIT
#pragma once

#include "ops/quantized/blocks.hpp"

/// \file
/// How numbers become codes: weights by ggml's rules, activations to 8 bits.

namespace kformer::Impl {

/// The code nearest to `value`, halves away from zero; 0 for NaN.
KOKKOS_INLINE_FUNCTION int nearest_code(float value, int least, int most) {
  const float rounded = Kokkos::round(value);
  if (!(rounded >= static_cast<float>(least))) return rounded == rounded ? least : 0;
  return rounded > static_cast<float>(most) ? most : static_cast<int>(rounded);
}

/// `⌊value⌋` for a value that is not negative, at most 15.
KOKKOS_INLINE_FUNCTION int nibble_below(float value) {
  return value >= 15 ? 15 : value > 0 ? static_cast<int>(value) : 0;
}

KOKKOS_INLINE_FUNCTION bool is_finite(float x) { return x - x == 0; }

/// 1/d where that is a number, else 0.
KOKKOS_INLINE_FUNCTION float inverse(float d) {
  const float inverse = 1 / d;
  return is_finite(inverse) ? inverse : 0;
}

/// Quantises a block of weights; see `quantize`.
template <QuantizedFormat format>
KOKKOS_FUNCTION void quantize_block(const float* x, std::uint8_t* block) {
  using Block = QuantizedBlock<format>;
  float least = x[0], most = x[0], extreme = 0;
  bool finite = true;
  for (int i = 0; i < Block::weights; ++i) {
    finite = finite && is_finite(x[i]);
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
    if (Kokkos::fabs(x[i]) > Kokkos::fabs(extreme)) extreme = x[i];
  }
  int codes[Block::weights] = {};
  if (!finite) return Block::store(block, codes, Kokkos::Experimental::quiet_NaN_v<float>, 0);
  float scale = Kokkos::fabs(extreme);
  if constexpr (format == QuantizedFormat::q8_0) scale /= 127;
  if constexpr (format == QuantizedFormat::q4_0) scale = extreme / -8;
  if constexpr (format == QuantizedFormat::q4_1) scale = (most - least) / 15;
  const float by_scale = inverse(scale);
  for (int i = 0; i < Block::weights; ++i) {
    if constexpr (format == QuantizedFormat::q4_0)
      codes[i] = nibble_below(x[i] * by_scale + 8.5f) - 8;
    else if constexpr (format == QuantizedFormat::q4_1)
      codes[i] = nibble_below((x[i] - least) * by_scale + 0.5f);
    else
      codes[i] = nearest_code(x[i] * by_scale, Block::ternary ? -1 : -127, Block::ternary ? 1 : 127);
  }
  Block::store(block, codes, scale, least);
}

/// Activations to 8 bits: `x ≈ scale·code`.
template <class C>
struct ActivationScale {
  C scale, inverse;

  /// Of numbers whose greatest magnitude this is, infinity if any is infinite or NaN.
  KOKKOS_FUNCTION explicit ActivationScale(C greatest) : scale(0), inverse(0) {
    if (!(greatest - greatest == C(0))) {
      scale = Kokkos::Experimental::quiet_NaN_v<C>;
    } else if (greatest >= C(0x1p-100)) {
      scale = greatest / C(127);
      inverse = C(127) / greatest;
    }
  }
  /// What `greatest` is the maximum of.
  KOKKOS_FUNCTION static C magnitude(C x) {
    const C size = Kokkos::fabs(x);
    return size - size == C(0) ? size : Kokkos::Experimental::infinity_v<C>;
  }
  /// 0 where the scale is NaN or 0.
  KOKKOS_FUNCTION int code(C x) const { return inverse == C(0) ? 0 : static_cast<int>(nearest(x * inverse)); }

 private:
  /// To an integer, halves to the even one; exact because |x| is at most 127.
  KOKKOS_FUNCTION static C nearest(C x) {
    const C low = Kokkos::floor(x), rest = x - low;
    if (rest == C(0.5)) return C(2) * Kokkos::floor((low + C(1)) / C(2));
    return rest < C(0.5) ? low : low + C(1);
  }
};

/// How many activations share a scale: 32, or a whole row (0).
constexpr std::int64_t activation_group(QuantizedFormat format) { return is_ternary(format) ? 0 : 32; }

}  // namespace kformer::Impl
