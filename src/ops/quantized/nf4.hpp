// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

#include "core/nf4_tables.hpp"
#include "kformer/core/quantized_format.hpp"

/// \file
/// What the bytes of NF4 mean, on every backend. Functions of devices index copies of the tables, because those of the
/// host are not there.

namespace kformer::Impl {

/// A float at any address.
KOKKOS_INLINE_FUNCTION float float_at(const std::uint8_t* from) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(from[i]) << 8 * i;
  return Kokkos::bit_cast<float>(bits);
}
KOKKOS_INLINE_FUNCTION void store_float(std::uint8_t* to, float value) {
  const auto bits = Kokkos::bit_cast<std::uint32_t>(value);
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(bits >> 8 * i & 0xff);
}

/// The value of a code of four bits.
KOKKOS_INLINE_FUNCTION float nf4_value(int code) {
  static constexpr Nf4Values values = nf4_values;
  return values.of[code];
}
/// The value of the code of an absmax.
KOKKOS_INLINE_FUNCTION double nf4_absmax_value(int code) {
  static constexpr Nf4AbsmaxValues values = nf4_absmax_values;
  return code < 127 ? -values.of[127 - code] : values.of[code - 127];
}

/// The product of a value and a nested scale plus the offset, each rounded to float.
KOKKOS_INLINE_FUNCTION float nf4_scale_of(double value, float nested, float offset) {
  const auto product = static_cast<float>(value * static_cast<double>(nested));
  return product + offset;
}
/// The scale of block `number` of a matrix from the code of its absmax and what is behind the matrix.
KOKKOS_INLINE_FUNCTION float nf4_scale(std::uint8_t code, const std::uint8_t* tail, std::int64_t number) {
  return nf4_scale_of(nf4_absmax_value(code), float_at(tail + 4 * (1 + number / nf4_blocks_per_scale)),
                      float_at(tail));
}

/// The code of `x`: how many of the middles between neighbouring values are below it; 0 for NaN.
KOKKOS_INLINE_FUNCTION int nf4_code(float x) {
  static constexpr Nf4Values thresholds = nf4_thresholds;
  int code = 0;
  for (int step = 8; step > 0; step /= 2)
    if (x > thresholds.of[code + step - 1]) code += step;
  return code;
}
/// The same of an absmax, in the dynamic map.
KOKKOS_INLINE_FUNCTION int nf4_absmax_code(float x) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2) {
    const int below = code + step - 1;
    const auto middle =
        (static_cast<float>(nf4_absmax_value(below)) + static_cast<float>(nf4_absmax_value(below + 1))) / 2;
    if (x > middle) code += step;
  }
  return code;
}

}  // namespace kformer::Impl
