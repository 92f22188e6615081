// SPDX-License-Identifier: MIT
#pragma once

#include "ops/quantized/host/activations.hpp"

/// \file
/// Tiles of 8-bit activations: products and sums of codes are integers and exact.

namespace kformer::Impl::simd::KFORMER_ISA {

#if defined(__AVX2__)
using IntegerSums = __m256i;
using FloatSums = __m256;

/// Whether four products are added to a sum of 32 bits at once; else two become 16 bits, which are added up
/// within a block and hold that: 16 · 127 · 3 of ternary codes, 2 · 127 · 128 of others.
#if defined(__AVX512VNNI__)
inline constexpr bool adds_four = true;
#else
inline constexpr bool adds_four = false;
#endif

/// Adds 32 products to the sums of a block.
template <QuantizedFormat kind>
KFORMER_SIMD_INLINE void add_products(IntegerSums& sums, Codes weights, const std::int8_t* from) {
  __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  if constexpr (kind == QuantizedFormat::q8_0) {
    x = _mm256_sign_epi8(x, weights);
    weights = _mm256_abs_epi8(weights);
  }
#if defined(__AVX512VNNI__)
  sums = _mm256_dpbusd_epi32(sums, weights, x);
#else
  sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, x));
#endif
}
/// The sums of a block as 32 bits.
KFORMER_SIMD_INLINE IntegerSums widened_sums(IntegerSums sums) {
  return adds_four ? sums : _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}
KFORMER_SIMD_INLINE IntegerSums added(IntegerSums a, IntegerSums b) { return _mm256_add_epi32(a, b); }
KFORMER_SIMD_INLINE IntegerSums load_sums(const std::int16_t* from) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
/// `value` as one of the sums, which are 0 otherwise.
KFORMER_SIMD_INLINE IntegerSums one_sum(std::int32_t value) {
  return _mm256_zextsi128_si256(_mm_cvtsi32_si128(value));
}

using DoubleSums = __m256d;
/// Adds integers times a binary16 number, exactly.
KFORMER_SIMD_INLINE void add_scaled(DoubleSums& total, IntegerSums sums, DoubleSums scale) {
  const __m128i x = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  total = _mm256_fmadd_pd(_mm256_cvtepi32_pd(x), scale, total);
}
KFORMER_SIMD_INLINE DoubleSums splat_half_as_double(const std::uint8_t* from) {
  std::int16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_set1_epi16(bits)));
}
KFORMER_SIMD_INLINE double total_of(DoubleSums sums) {
  const __m128d x = _mm_add_pd(_mm256_castpd256_pd128(sums), _mm256_extractf128_pd(sums, 1));
  return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
}

/// The first number is a scale, the second one belongs to sums of codes.
using NumberPair = __m128;
/// The scale of a block and its offset, or the scale again.
template <QuantizedFormat kind>
KFORMER_SIMD_INLINE NumberPair pair_of(const std::uint8_t* block) {
  std::int32_t bits = 0;
  std::memcpy(&bits, block, Blocks<kind>::has_offset ? 4 : 2);
  return _mm_cvtph_ps(Blocks<kind>::has_offset ? _mm_cvtsi32_si128(bits)
                                               : _mm_set1_epi16(static_cast<short>(bits)));
}
KFORMER_SIMD_INLINE NumberPair load_pair(const float* from) {
  return _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
KFORMER_SIMD_INLINE float second_of(NumberPair pair) { return _mm_cvtss_f32(_mm_movehdup_ps(pair)); }
KFORMER_SIMD_INLINE void add_scaled(FloatSums& sum, IntegerSums sums, NumberPair scale) {
  sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_broadcastss_ps(scale), sum);
}
KFORMER_SIMD_INLINE float total_of(FloatSums a, FloatSums b) {
  const __m256 both = _mm256_add_ps(a, b);
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
#else
using IntegerSums = std::int32_t;
using FloatSums = float;
inline constexpr bool adds_four = true;

template <QuantizedFormat kind>
KFORMER_SIMD_INLINE void add_products(IntegerSums& sums, const Codes& weights, const std::int8_t* x) {
  for (int i = 0; i < unit_weights; ++i) sums += weights.at[i] * x[i];
}
KFORMER_SIMD_INLINE IntegerSums widened_sums(IntegerSums sums) { return sums; }
KFORMER_SIMD_INLINE IntegerSums added(IntegerSums a, IntegerSums b) { return a + b; }
KFORMER_SIMD_INLINE IntegerSums load_sums(const std::int16_t* from) { return *from; }
KFORMER_SIMD_INLINE IntegerSums one_sum(std::int32_t value) { return value; }

using DoubleSums = double;
KFORMER_SIMD_INLINE void add_scaled(DoubleSums& total, IntegerSums sums, DoubleSums scale) {
  total += static_cast<double>(sums) * scale;
}
KFORMER_SIMD_INLINE DoubleSums splat_half_as_double(const std::uint8_t* from) { return one_half(from); }
KFORMER_SIMD_INLINE double total_of(DoubleSums sums) { return sums; }

struct NumberPair {
  float first, second;

  KFORMER_SIMD_INLINE NumberPair operator*(NumberPair other) const {
    return {first * other.first, second * other.second};
  }
  KFORMER_SIMD_INLINE NumberPair& operator+=(NumberPair other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};
template <QuantizedFormat kind>
KFORMER_SIMD_INLINE NumberPair pair_of(const std::uint8_t* block) {
  return {one_half(block), one_half(block + (Blocks<kind>::has_offset ? 2 : 0))};
}
KFORMER_SIMD_INLINE NumberPair load_pair(const float* from) { return {from[0], from[1]}; }
KFORMER_SIMD_INLINE float second_of(NumberPair pair) { return pair.second; }
KFORMER_SIMD_INLINE void add_scaled(FloatSums& sum, IntegerSums sums, NumberPair scale) {
  sum += static_cast<float>(sums) * scale.first;
}
KFORMER_SIMD_INLINE float total_of(FloatSums a, FloatSums b) { return a + b; }
#endif

/// `to[r·ld]` = row r of x, from `row` on, times the row of weights. A block is a unit here.
template <QuantizedFormat kind, int rows>
KFORMER_SIMD_INLINE void int8_dot(const std::uint8_t* weights, const Int8Inputs<kind>& x, int row, float* to,
                                  std::int64_t ld) {
  constexpr bool has_shift = Blocks<kind>::shift != 0;
  FloatSums sum[2][rows] = {};
  NumberPair offsets[rows] = {};  // of interest are the second ones
  const std::int8_t* codes = x.codes + row * x.ld;
  const float* pairs = x.pairs + row * 2 * x.groups;
  const std::int16_t* shifts = nullptr;
  if constexpr (has_shift) shifts = x.shifts + row * x.groups * sum_lanes;
  const auto add = [&](std::int64_t g, FloatSums(&to_sum)[rows]) __attribute__((always_inline)) {
    const std::uint8_t* block = weights + g * Blocks<kind>::bytes;
    __builtin_prefetch(block + bytes_ahead);
    const Codes w = codes_of<kind, 0>(block);
    const NumberPair numbers = pair_of<kind>(block);
    KFORMER_SIMD_UNROLL
    for (int r = 0; r < rows; ++r) {
      // A shift of the codes is larger than what it leaves of their sum: in floats it would cost digits.
      IntegerSums products{}, shift{};
      if constexpr (has_shift) shift = load_sums(shifts + (r * x.groups + g) * sum_lanes);
      if constexpr (adds_four) products = shift;
      add_products<kind>(products, w, codes + r * x.ld + g * unit_weights);
      products = widened_sums(products);
      if constexpr (has_shift && !adds_four) products = added(products, shift);
      const NumberPair scaled = numbers * load_pair(pairs + 2 * (r * x.groups + g));
      add_scaled(to_sum[r], products, scaled);
      if constexpr (Blocks<kind>::has_offset) offsets[r] += scaled;
    }
  };
  std::int64_t g = 0;
  for (; g + 2 <= x.groups; g += 2) {
    add(g, sum[0]);
    add(g + 1, sum[1]);
  }
  if (g < x.groups) add(g, sum[0]);
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) to[r * ld] = total_of(sum[0][r], sum[1][r]) + second_of(offsets[r]);
}

/// Rows of ternary weights that share a pass over `rows` rows of x: enough independent sums to hide the latency
/// of the products, and inputs are loaded once.
template <int rows>
inline constexpr int pass_cols = rows == 1   ? 2
                                 : adds_four ? 4
                                             : 1;

/// The same of `cols` rows of ternary weights, `line` bytes apart: as long as their scales stay the same the
/// sums are integers. Times a scale of 11 bits they are exact in double, and so is their total where a row has
/// one scale.
template <QuantizedFormat kind, int rows, int cols>
KFORMER_SIMD_INLINE void ternary_dots(const std::uint8_t* weights, std::int64_t line, const Int8Inputs<kind>& x,
                                      int row, float* to, std::int64_t ld) {
  constexpr int chains = !adds_four ? 1 : rows * cols < 8 ? 2 : 1;
  constexpr int block_weights = Blocks<kind>::units * unit_weights;
  // 32 bits hold the 256 products of up to 3·127 from each block.
  constexpr std::int64_t longest_run = std::int64_t(1) << 14;
  const std::int64_t blocks = x.ld / block_weights;
  const auto block_at = [&](int c, std::int64_t b) __attribute__((always_inline)) {
    return weights + c * line + b * Blocks<kind>::bytes;
  };
  const auto scale_bits = [&](int c, std::int64_t b) __attribute__((always_inline)) {
    std::uint16_t bits;
    std::memcpy(&bits, block_at(c, b) + Blocks<kind>::scale_at, sizeof(bits));
    return bits;
  };
  DoubleSums total[cols][rows] = {};
  for (std::int64_t begin = 0; begin < blocks;) {
    const std::int64_t most = smaller(blocks, begin + longest_run);
    const auto continues = [&](std::int64_t b) __attribute__((always_inline)) {
      unsigned differs = 0;
      KFORMER_SIMD_UNROLL
      for (int c = 0; c < cols; ++c) differs |= scale_bits(c, b) ^ scale_bits(c, begin);
      return differs == 0;
    };
    IntegerSums sum[chains][cols][rows] = {};
    std::int64_t b = begin;
    do {
      const std::int8_t* codes = x.codes + row * x.ld + b * block_weights;
      IntegerSums narrow[cols][rows] = {};
      KFORMER_SIMD_UNROLL
      for (int c = 0; c < cols; ++c)
        __builtin_prefetch(weights + bytes_ahead + (b * cols + c) * Blocks<kind>::bytes);
      for_each_unit<kind>(Blocks<kind>::units, [&]<int unit>() __attribute__((always_inline)) {
        Codes w[cols];
        KFORMER_SIMD_UNROLL
        for (int c = 0; c < cols; ++c) w[c] = codes_of<kind, unit>(block_at(c, b));
        KFORMER_SIMD_UNROLL
        for (int r = 0; r < rows; ++r) {
          KFORMER_SIMD_UNROLL
          for (int c = 0; c < cols; ++c)
            add_products<kind>(adds_four ? sum[unit % chains][c][r] : narrow[c][r], w[c],
                               codes + r * x.ld + unit * unit_weights);
        }
      });
      if constexpr (!adds_four) {
        KFORMER_SIMD_UNROLL
        for (int c = 0; c < cols; ++c) {
          KFORMER_SIMD_UNROLL
          for (int r = 0; r < rows; ++r) sum[0][c][r] = added(sum[0][c][r], widened_sums(narrow[c][r]));
        }
      }
      ++b;
    } while (b < most && continues(b));
    KFORMER_SIMD_UNROLL
    for (int r = 0; r < rows; ++r) {
      const std::int64_t* sums_to = x.sums_to + (row + r) * (blocks + 1);
      const IntegerSums shift = one_sum(static_cast<std::int32_t>(sums_to[begin] - sums_to[b]));
      KFORMER_SIMD_UNROLL
      for (int c = 0; c < cols; ++c) {
        const IntegerSums all = chains == 1 ? sum[0][c][r] : added(sum[0][c][r], sum[chains - 1][c][r]);
        add_scaled(total[c][r], added(all, shift),
                   splat_half_as_double(block_at(c, begin) + Blocks<kind>::scale_at));
      }
    }
    begin = b;
  }
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int c = 0; c < cols; ++c)
      to[r * ld + c] = static_cast<float>(total_of(total[c][r]) * x.scales[row + r]);
  }
}

template <QuantizedFormat kind>
struct Int8Tile {
  Int8Inputs<kind> x;
  float *row, *sums;
  std::int64_t sums_ld;

  std::size_t lay_out(void* memory, std::int64_t inner, int rows, int cols) {
    Scratch scratch(memory);
    x.lay_out(scratch, inner, rows);
    sums_ld = padded<float>(cols);
    row = scratch.take<float>(x.ld);
    sums = scratch.take<float>(rows * sums_ld);
    return scratch.bytes();
  }
};

template <QuantizedFormat kind>
std::size_t int8_scratch(std::int64_t inner, int rows, int cols) {
  return Int8Tile<kind>{}.lay_out(nullptr, inner, rows, cols);
}

template <class T, QuantizedFormat kind>
void int8_tile(const ProductArguments& p, const ProductTile& tile, void* scratch) {
  Int8Tile<kind> all{};
  all.lay_out(scratch, p.inner, tile.rows, tile.cols);
  for (int r = 0; r < tile.rows; ++r) {
    load_inputs<T>(p, {tile.row + r, 0, 1, 0}, all.row, all.x.ld);
    all.x.encode(r, all.row);
  }
  const auto* weights = static_cast<const std::uint8_t*>(p.right.data) + tile.col * p.right.index_stride;
  const std::int64_t line = p.right.index_stride;
  const auto pass = [&]<int rows, int cols>(int row, int col) {
    float* to = all.sums + row * all.sums_ld + col;
    if constexpr (Blocks<kind>::ternary)
      ternary_dots<kind, rows, cols>(weights + col * line, line, all.x, row, to, all.sums_ld);
    else
      int8_dot<kind, rows>(weights + col * line, all.x, row, to, all.sums_ld);
  };
  // A group of columns stays in the caches while all rows pass.
  constexpr int group = 4;
  for (int first = 0; first < tile.cols; first += group)
    for (int row = 0; row < tile.rows; row += pass_rows)
      with_block<pass_rows>(tile.rows - row, [&]<int rows>() {
        constexpr int cols = Blocks<kind>::ternary ? pass_cols<rows> : 1;
        static_assert(group % cols == 0);
        const int end = tile.cols - first < group ? tile.cols : first + group;
        int col = first;
        for (; col + cols <= end; col += cols) pass.template operator()<rows, cols>(row, col);
        for (; col < end; ++col) pass.template operator()<rows, 1>(row, col);
      });
  store_result<T>(p, tile, all.sums, all.sums_ld);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
