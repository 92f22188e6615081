// SPDX-License-Identifier: MIT
#pragma once

#include "core/nf4_tables.hpp"
#include "ops/common/simd/storage.hpp"
#include "ops/quantized/host/arguments.hpp"

/// \file
/// Quantised weights in registers, 32 at a time: a unit, which is a block or the eighth of a ternary one.

namespace kformer::Impl::simd::KFORMER_ISA {

inline constexpr int unit_weights = 32;
inline constexpr int unit_vectors = unit_weights / width<float>;

/// How many bytes ahead weights are asked for that are read once, in the order of memory: left to itself, the
/// processor stops at every page, and does not foresee that several streams are one.
inline constexpr std::int64_t bytes_ahead = 4096;

/// A weight is `scale·(code − shift) + offset`, and of NF4 `scale·value(code)`.
template <QuantizedFormat kind>
struct Blocks {
  static constexpr bool ternary = kind == QuantizedFormat::tq2_0 || kind == QuantizedFormat::tq1_0;
  static constexpr bool nibbles = kind == QuantizedFormat::q4_0 || kind == QuantizedFormat::q4_1;
  static constexpr bool table = kind == QuantizedFormat::nf4;
  static constexpr bool has_offset = kind == QuantizedFormat::q4_1;
  static constexpr int units = ternary ? 8 : table ? 2 : 1;
  static constexpr int bytes = kind == QuantizedFormat::q8_0    ? 34
                               : kind == QuantizedFormat::q4_0  ? 18
                               : kind == QuantizedFormat::q4_1  ? 20
                               : kind == QuantizedFormat::tq2_0 ? 66
                               : kind == QuantizedFormat::nf4   ? 33
                                                                : 54;
  static constexpr int scale_at = ternary ? bytes - 2 : 0;
  static constexpr int codes_at = ternary ? 0 : table ? 1 : has_offset ? 4 : 2;
  static constexpr int shift = kind == QuantizedFormat::q4_0 ? 8 : ternary ? 1 : 0;
};

template <QuantizedFormat kind>
constexpr std::int64_t blocks_of(std::int64_t weights) {
  constexpr std::int64_t per_block = Blocks<kind>::units * unit_weights;
  return (weights + per_block - 1) / per_block;
}

/// A binary16 number in every lane.
KFORMER_SIMD_INLINE Vector<float> splat_half(const std::uint8_t* from) {
  std::int16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_set1_epi16(bits));
#else
  F16 all[width<float>];
  for (F16& one : all) one.bits = static_cast<std::uint16_t>(bits);
  return load_stored(all);
#endif
}
KFORMER_SIMD_INLINE float one_half(const std::uint8_t* from) { return splat_half(from)[0]; }

#if defined(__AVX2__)

/// The codes of a unit, in order; those of q8_0 are signed, others not.
using Codes = __m256i;

/// x·3ⁿ in bytes.
template <int n>
KFORMER_SIMD_INLINE __m256i times_power_of_3(__m256i x) {
  if constexpr (n == 0)
    return x;
  else
    return times_power_of_3<n - 1>(_mm256_add_epi8(x, _mm256_add_epi8(x, x)));
}

/// ⌊3·x/256⌋ in bytes: 1 from 86 on, 2 from 171 on.
KFORMER_SIMD_INLINE __m256i leading_digit(__m256i x) {
  const __m256i one = _mm256_set1_epi8(1);
  const __m256i first = _mm256_min_epu8(_mm256_subs_epu8(x, _mm256_set1_epi8(85)), one);
  const __m256i second = _mm256_min_epu8(_mm256_subs_epu8(x, _mm256_set1_epi8(static_cast<char>(170))), one);
  return _mm256_add_epi8(first, second);
}

/// The last 16 weights of a tq1_0 block: digit n of its last four bytes is at 4n.
KFORMER_SIMD_INLINE __m128i last_bytes_by_digit(const std::uint8_t* bytes) {
  std::int32_t four;
  std::memcpy(&four, bytes, sizeof(four));
  const __m256i powers = _mm256_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27);
  const __m256i product = _mm256_and_si256(
      _mm256_mullo_epi16(_mm256_cvtepu8_epi16(_mm_set1_epi32(four)), powers), _mm256_set1_epi16(255));
  return _mm_packus_epi16(_mm256_castsi256_si128(product), _mm256_extracti128_si256(product, 1));
}

template <QuantizedFormat kind, int unit>
KFORMER_SIMD_INLINE Codes codes_of(const std::uint8_t* block) {
  const auto load_32 = [](const std::uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  const auto load_16 = [](const std::uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const std::uint8_t* q = block + Blocks<kind>::codes_at;
  if constexpr (kind == QuantizedFormat::q8_0) {
    return load_32(q);
  } else if constexpr (Blocks<kind>::nibbles) {
    const __m128i both = load_16(q);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), _mm256_set1_epi8(15));
  } else if constexpr (Blocks<kind>::table) {
    const __m128i pairs = load_16(q + unit * 16), low = _mm_set1_epi8(15);
    const __m128i first = _mm_and_si128(_mm_srli_epi16(pairs, 4), low), second = _mm_and_si128(pairs, low);
    return _mm256_set_m128i(_mm_unpackhi_epi8(first, second), _mm_unpacklo_epi8(first, second));
  } else if constexpr (kind == QuantizedFormat::tq2_0) {
    return _mm256_and_si256(_mm256_srli_epi16(load_32(q + unit / 4 * 32), unit % 4 * 2), _mm256_set1_epi8(3));
  } else if constexpr (unit < 5) {
    return leading_digit(times_power_of_3<unit>(load_32(q)));
  } else {
    const __m256i middle = _mm256_broadcastsi128_si256(load_16(q + 32));
    if constexpr (unit < 7)
      return leading_digit(_mm256_blend_epi32(times_power_of_3<2 * (unit - 5)>(middle),
                                              times_power_of_3<2 * (unit - 5) + 1>(middle), 0xf0));
    else
      return leading_digit(
          _mm256_set_m128i(last_bytes_by_digit(q + 48), _mm256_castsi256_si128(times_power_of_3<4>(middle))));
  }
}

#else

struct Codes {
  std::int8_t at[unit_weights];
};

template <QuantizedFormat kind, int unit>
KFORMER_SIMD_INLINE Codes codes_of(const std::uint8_t* block) {
  const std::uint8_t* q = block + Blocks<kind>::codes_at;
  Codes codes;
  if constexpr (kind == QuantizedFormat::tq1_0) {
    constexpr int powers[] = {1, 3, 9, 27, 81};
    for (int i = 0; i < unit_weights; ++i) {
      const int weight = unit * unit_weights + i;
      const int byte = weight < 160 ? i : weight < 240 ? 32 + i % 16 : 48 + i % 4;
      const int digit = weight < 160 ? unit : weight < 240 ? (weight - 160) / 16 : (weight - 240) / 4;
      codes.at[i] = static_cast<std::int8_t>((q[byte] * powers[digit] & 255) * 3 >> 8);
    }
  } else {
    for (int i = 0; i < unit_weights; ++i)
      codes.at[i] =
          static_cast<std::int8_t>(kind == QuantizedFormat::q8_0 ? q[i]
                                   : Blocks<kind>::table         ? q[unit * 16 + i / 2] >> (i % 2 ? 0 : 4) & 15
                                   : kind == QuantizedFormat::tq2_0 ? q[unit / 4 * 32 + i] >> unit % 4 * 2 & 3
                                   : i < 16                         ? q[i] & 15
                                                                    : q[i % 16] >> 4);
  }
  return codes;
}

#endif

/// What turns the codes of a block into weights: `scale·code + offset`, `offset` with the shift in it; of NF4 the
/// scale alone.
struct BlockNumbers {
  Vector<float> scale, offset;
};

/// Where the numbers of a matrix' blocks are.
struct MatrixNumbers {
  explicit MatrixNumbers(const ProductArguments& p)
      : begin(static_cast<const std::uint8_t*>(p.right.data)), tail(static_cast<const float*>(p.tail)) {}
  const std::uint8_t* begin;  ///< of the matrix
  const float* tail;          ///< at any address
};

/// The scale of a block of NF4: the value of the code of its absmax times the nested scale, plus the offset.
KFORMER_SIMD_INLINE float nf4_scale(const MatrixNumbers& matrix, const std::uint8_t* block) {
  constexpr std::int64_t blocks_per_scale = 256;
  const std::int64_t number = (block - matrix.begin) / Blocks<QuantizedFormat::nf4>::bytes;
  float offset, nested;
  std::memcpy(&offset, matrix.tail, sizeof(offset));
  std::memcpy(&nested, matrix.tail + 1 + number / blocks_per_scale, sizeof(nested));
  const double value = *block < 127 ? -nf4_absmax_values.of[127 - *block] : nf4_absmax_values.of[*block - 127];
  const auto product = static_cast<float>(value * static_cast<double>(nested));
  return product + offset;
}

template <QuantizedFormat kind>
KFORMER_SIMD_INLINE BlockNumbers numbers_of(const MatrixNumbers& matrix, const std::uint8_t* block) {
  if constexpr (Blocks<kind>::table) return {splat(nf4_scale(matrix, block)), Vector<float>{}};
  const Vector<float> scale = splat_half(block + Blocks<kind>::scale_at);
  if constexpr (Blocks<kind>::has_offset)
    return {scale, splat_half(block + 2)};
  else
    return {scale, scale * splat(static_cast<float>(-Blocks<kind>::shift))};
}

/// Values of the table of NF4, times the scale: one rounding.
template <int unit>
KFORMER_SIMD_INLINE void table_weights(const std::uint8_t* block, Vector<float> scale,
                                       Vector<float> (&w)[unit_vectors]) {
  const Codes codes = codes_of<QuantizedFormat::nf4, unit>(block);
#if defined(__AVX512F__)
  const Vector<float> table = load(nf4_values.of) * scale;
  w[0] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(codes)), table);
  w[1] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(codes, 1)), table);
#elif defined(__AVX2__)
  const Vector<float> low = load(nf4_values.of) * scale, high = load(nf4_values.of + 8) * scale;
  KFORMER_SIMD_UNROLL
  for (int v = 0; v < unit_vectors; ++v) {
    const __m128i half = v < 2 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1);
    // Lookups use the lowest three bits; the fourth one, as a sign, chooses between them.
    const __m256i code = _mm256_cvtepu8_epi32(v % 2 ? _mm_srli_si128(half, 8) : half);
    w[v] = _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code), _mm256_permutevar8x32_ps(high, code),
                            _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
  }
#else
  for (int v = 0; v < unit_vectors; ++v)
    for (int i = 0; i < width<float>; ++i) w[v][i] = nf4_values.of[codes.at[v * width<float> + i]] * scale[i];
#endif
}

/// The weights of a unit. `scale·code` has at most 19 bits, so that there is at most one rounding.
template <QuantizedFormat kind, int unit>
KFORMER_SIMD_INLINE void weights_of(const std::uint8_t* block, const BlockNumbers& numbers,
                                    Vector<float> (&w)[unit_vectors]) {
  if constexpr (Blocks<kind>::table) return table_weights<unit>(block, numbers.scale, w);
#if defined(__AVX512F__)
  if constexpr (Blocks<kind>::nibbles) {
    // A table of the values of the 16 codes; the lookup uses the lowest four bits.
    const Vector<float> table = fused_multiply_add<float>(ramp<float>(), numbers.scale, numbers.offset);
    const __m512i both =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + Blocks<kind>::codes_at)));
    w[0] = _mm512_permutexvar_ps(both, table);
    w[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), table);
    return;
  }
#endif
  const Codes codes = codes_of<kind, unit>(block);
  KFORMER_SIMD_UNROLL
  for (int v = 0; v < unit_vectors; ++v) {
    Vector<float> code;
#if defined(__AVX512F__)
    const __m128i part = v == 0 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1);
    code = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(part));
#elif defined(__AVX2__)
    const __m128i half = v < 2 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1);
    code = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v % 2 ? _mm_srli_si128(half, 8) : half));
#else
    for (int i = 0; i < width<float>; ++i) code[i] = static_cast<float>(codes.at[v * width<float> + i]);
#endif
    w[v] = fused_multiply_add<float>(code, numbers.scale, numbers.offset);
  }
}

/// `f.operator()<unit>()` for the units of a block below `count`, in order.
template <QuantizedFormat kind, int unit = 0, class F>
KFORMER_SIMD_INLINE void for_each_unit(std::int64_t count, F f) {
  if constexpr (unit < Blocks<kind>::units) {
    if (unit >= count) return;
    f.template operator()<unit>();
    for_each_unit<kind, unit + 1>(count, f);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
