// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// \file
/// The maps of 8-bit states: 256 values in ascending order, and the border above each, so that a code is the
/// number of borders below a value. See `AdamWParameter` for the formula. Free of Kokkos: kernels for CUDA have
/// the maps as constants.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define KFORMER_MAP_FUNCTION __host__ __device__ constexpr
#else
#define KFORMER_MAP_FUNCTION constexpr
#endif

namespace kformer::Impl {

/// Whether a map has negative values: that of `m` does, that of `v` does not.
enum class MapSign { with, without };

/// The value of a code: a quotient of two integers, exact in double except for one rounding.
template <MapSign sign>
KFORMER_MAP_FUNCTION float dynamic_value(int code) {
  if (code == 255) return 1;
  const bool is_signed = sign == MapSign::with;
  const int n = !is_signed ? code + 1 : code < 127 ? 127 - code : code - 127;
  if (n == (is_signed ? 0 : 1)) return 0;
  int k = 0;
  while (n >> (k + 1) != 0) ++k;
  // 10^(i − 6)·(1/10 + 9/10·(j + ½)/2^k) = (2^(k+1) + 9·(2j + 1)) / (2^(k+1)·10^(7 − i))
  const int j = n - (1 << k), i = is_signed ? k : k - 1;
  double denominator = 2 << k;
  for (int power = 0; power < 7 - i; ++power) denominator *= 10;
  const double magnitude = ((2 << k) + 9 * (2 * j + 1)) / denominator;
  return static_cast<float>(is_signed && code < 127 ? -magnitude : magnitude);
}

/// The greatest float that is not nearer to the value of `code + 1` than to that of `code`; infinite for the
/// last code.
template <MapSign sign>
KFORMER_MAP_FUNCTION float dynamic_border(int code) {
  if (code == 255) return __builtin_huge_valf();
  if (sign == MapSign::without && code == 0) return 0;  // a positive number is not coded as 0
  const double middle = (static_cast<double>(dynamic_value<sign>(code)) + dynamic_value<sign>(code + 1)) / 2;
  const auto nearest = static_cast<float>(middle);
  if (nearest <= middle) return nearest;
  const auto bits = __builtin_bit_cast(std::uint32_t, nearest);
  return __builtin_bit_cast(float, nearest > 0 ? bits - 1 : bits + 1);
}

/// The values and borders of a map as tables.
struct DynamicMap {
  float value[256], border[256];
};

template <MapSign sign>
constexpr DynamicMap dynamic_map() {
  DynamicMap map{};
  for (int code = 0; code < 256; ++code) {
    map.value[code] = dynamic_value<sign>(code);
    map.border[code] = dynamic_border<sign>(code);
  }
  return map;
}

/// The code of `x` in [−1, 1]; 0 for NaN.
KFORMER_MAP_FUNCTION int dynamic_code(const DynamicMap& map, float x) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2)
    if (x > map.border[code + step - 1]) code += step;
  return code;
}

}  // namespace kformer::Impl
