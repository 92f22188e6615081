// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/largest.hpp"
#include "ops/quantized/host/dots.hpp"

/// \file
/// Activations of 8 bits, in the scratch of a tile. Scales and codes are those of ops/quantized/rules.hpp, bit
/// by bit.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Numbers that become codes by one scale.
struct ActivationNumbers {
  float scale, inverse;

  /// Of whole vectors.
  KFORMER_SIMD_INLINE ActivationNumbers(const float* x, std::int64_t count) : scale(0), inverse(0) {
    Vector<float> most{}, bad{};
    for (std::int64_t i = 0; i < count; i += width<float>) {
      const Vector<float> v = load(x + i);
      most = greater<float>(magnitude<float>(v), most);
      bad += v - v;  // NaN where v is not finite
    }
    const float greatest = largest_lane<float>(most);
    const float nothing = sum_of<float>(bad);
    if (nothing != 0) {
      scale = nothing;
    } else if (greatest >= 0x1p-100f) {
      scale = greatest / 127;
      inverse = 127 / greatest;
    }
  }

  /// Writes the codes of whole vectors, at most 256, and returns their sum.
  KFORMER_SIMD_INLINE std::int32_t encode(const float* x, std::int64_t count, std::int8_t* to) const {
    IntegerVector<float> sum{};
    for (std::int64_t i = 0; i < count; i += width<float>) {
      const Vector<float> scaled = inverse == 0 ? Vector<float>{} : load(x + i) * splat(inverse);
      IntegerVector<float> code;
#if defined(__AVX512F__)
      code = as_bits<IntegerVector<float>>(_mm512_cvtps_epi32(scaled));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtepi32_epi8(as_bits<__m512i>(code)));
#else
#if defined(__AVX2__)
      code = as_bits<IntegerVector<float>>(_mm256_cvtps_epi32(scaled));
#else
      for (int lane = 0; lane < width<float>; ++lane)
        code[lane] = static_cast<std::int32_t>(__builtin_rintf(scaled[lane]));
#endif
      for (int lane = 0; lane < width<float>; ++lane) to[i + lane] = static_cast<std::int8_t>(code[lane]);
#endif
      sum += code;
    }
    // A float holds the sum of up to 256 codes exactly.
    return static_cast<std::int32_t>(sum_of<float>(__builtin_convertvector(sum, Vector<float>)));
  }
};

#if defined(__AVX2__)
/// The lanes of a sum of products of codes; each has four neighbours.
inline constexpr int sum_lanes = 8;
/// `factor` · the sums of the codes of a unit.
KFORMER_SIMD_INLINE void scaled_sums(const std::int8_t* codes, int factor, std::int16_t* to) {
  const __m256i pairs =
      _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(static_cast<short>(factor)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
}
#else
inline constexpr int sum_lanes = 1;
KFORMER_SIMD_INLINE void scaled_sums(const std::int8_t* codes, int factor, std::int16_t* to) {
  int sum = 0;
  for (int i = 0; i < unit_weights; ++i) sum += codes[i];
  *to = static_cast<std::int16_t>(factor * sum);  // at most 8 · 32 · 127
}
#endif

/// The rows of a tile: codes, and what sums of them are multiplied with.
template <QuantizedFormat kind>
struct Int8Inputs {
  static constexpr bool ternary = Blocks<kind>::ternary;
  std::int64_t ld = 0, groups = 0;  ///< codes in a row, whole blocks; scales in a row
  std::int8_t* codes = nullptr;
  float* scales = nullptr;  ///< per row; of ternary weights
  float* pairs = nullptr;   ///< per unit the scale, and what offsets are multiplied with; of other weights
  std::int16_t* shifts = nullptr;   ///< per unit −shift · the sums of its codes, by lanes; of Q4_0
  std::int64_t* sums_to = nullptr;  ///< of the codes before each block, and of all; of ternary weights

  void lay_out(Scratch& scratch, std::int64_t inner, int rows) {
    const std::int64_t blocks = blocks_of<kind>(inner);
    ld = blocks * Blocks<kind>::units * unit_weights;
    groups = ternary ? 1 : blocks;
    codes = scratch.take<std::int8_t>(rows * ld);
    if constexpr (ternary) {
      scales = scratch.take<float>(rows);
      sums_to = scratch.take<std::int64_t>(rows * (blocks + 1));
    } else {
      pairs = scratch.take<float>(2 * rows * groups);
      if constexpr (Blocks<kind>::shift != 0) shifts = scratch.take<std::int16_t>(rows * groups * sum_lanes);
    }
  }

  /// Row `row` from `ld` floats.
  void encode(int row, const float* x) {
    std::int8_t* to = codes + row * ld;
    if constexpr (ternary) {
      constexpr std::int64_t block = Blocks<kind>::units * unit_weights;
      const ActivationNumbers numbers(x, ld);
      scales[row] = numbers.scale;
      std::int64_t* sums = sums_to + row * (ld / block + 1);
      sums[0] = 0;
      for (std::int64_t b = 0; b < ld / block; ++b)
        sums[b + 1] = sums[b] + numbers.encode(x + b * block, block, to + b * block);
    } else {
      for (std::int64_t g = 0; g < groups; ++g) {
        const ActivationNumbers numbers(x + g * unit_weights, unit_weights);
        const std::int32_t sum = numbers.encode(x + g * unit_weights, unit_weights, to + g * unit_weights);
        float* pair = pairs + 2 * (row * groups + g);
        pair[0] = numbers.scale;
        pair[1] = Blocks<kind>::has_offset ? numbers.scale * static_cast<float>(sum) : 0;
        if constexpr (Blocks<kind>::shift != 0)
          scaled_sums(to + g * unit_weights, -Blocks<kind>::shift, shifts + (row * groups + g) * sum_lanes);
      }
    }
  }
};

}  // namespace kformer::Impl::simd::KFORMER_ISA
