// SPDX-License-Identifier: MIT
#pragma once

#include "ops/quantized/host/int8.hpp"

/// \file
/// Tiles of many rows of 8-bit activations: codes of weights are packed into panels of three vectors of columns,
/// four neighbours along the sum in each lane, and stay in the first cache while all rows pass. Products and sums
/// of a block are integers and exact.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Formats whose rows of 32 weights have a scale each, where four products are added to a sum at once.
template <QuantizedFormat kind>
inline constexpr bool has_int8_panels =
#if defined(__AVX512VNNI__)
    !Blocks<kind>::ternary && !Blocks<kind>::table;
#else
    false;
#endif

#if !defined(__AVX512VNNI__)

std::size_t int8_panel_scratch(std::int64_t inner, int rows, int cols);
template <class T, QuantizedFormat kind>
void int8_panel_tile(const ProductArguments& p, const ProductTile& tile, void* scratch);

#else

/// Units along the sum that are packed at a time, the columns of a vector and of a panel, and the rows that share
/// a pass over a panel.
inline constexpr int step_units = 16, vector_cols = 16, panel_vectors = 3, panel_rows = 4;
inline constexpr int int8_panel_cols = panel_vectors * vector_cols;
static_assert(int8_panel_cols == host::int8_panel_cols);
inline constexpr int unit_quads = unit_weights / 4;

/// What is added to codes of weights so that they have no sign, or is in them already.
template <QuantizedFormat kind>
inline constexpr int code_shift = kind == QuantizedFormat::q8_0 ? 128 : Blocks<kind>::shift;

/// Some units of the rows of a tile.
struct StepInputs {
  std::int8_t* codes;    ///< per row `step_units` units
  std::int32_t* shifts;  ///< per row and unit −`code_shift` · the sum of the codes
  float *scales, *sums;  ///< per row and unit the scale, and times the sum of the codes

  void lay_out(Scratch& scratch, int rows) {
    codes = scratch.take<std::int8_t>(rows * step_units * unit_weights);
    shifts = scratch.take<std::int32_t>(rows * step_units);
    scales = scratch.take<float>(rows * step_units);
    sums = scratch.take<float>(rows * step_units);
  }

  template <class T, QuantizedFormat kind>
  void encode(const ProductArguments& p, const ProductTile& tile, std::int64_t unit, int units) const {
    const std::int64_t at = unit * unit_weights;
    const int count = static_cast<int>(smaller(units * unit_weights, p.inner - at));
    alignas(64) float x[step_units * unit_weights] = {};
    for (int r = 0; r < tile.rows; ++r) {
      load_row(static_cast<const T*>(p.left.data) + (tile.row + r) * p.left.index_stride + at, count, x);
      encode_row<kind>(x, r);
    }
  }

 private:
  /// As `ActivationNumbers`, a unit in each lane.
  template <QuantizedFormat kind>
  KFORMER_SIMD_INLINE void encode_row(const float* x, int row) const {
    static_assert(step_units == 16 && unit_weights == 2 * width<float>);
    const __m512i greatest = lanewise(
        [&](int u) {
          const __m512i first = magnitude_bits(x + u * unit_weights);
          return _mm512_max_epu32(first, magnitude_bits(x + u * unit_weights + width<float>));
        },
        [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); });
    const __m512 most = _mm512_castsi512_ps(greatest), codes_of_most = _mm512_set1_ps(127);
    const __mmask16 bad = _mm512_cmpge_epu32_mask(greatest, _mm512_set1_epi32(0x7f800000));
    const __mmask16 any =
        _mm512_cmp_ps_mask(most, _mm512_set1_ps(0x1p-100f), _CMP_GE_OQ) & static_cast<__mmask16>(~bad);
    const __m512 scale = _mm512_mask_mov_ps(_mm512_maskz_div_ps(any, most, codes_of_most), bad,
                                            _mm512_set1_ps(__builtin_nanf("")));
    alignas(64) float inverses[step_units];
    _mm512_store_ps(inverses, _mm512_maskz_div_ps(any, codes_of_most, most));
    std::int8_t* to = codes + row * step_units * unit_weights;
    for (int i = 0; i < step_units * unit_weights; i += width<float>) {
      const __m512 scaled = _mm512_mul_ps(_mm512_load_ps(x + i), _mm512_set1_ps(inverses[i / unit_weights]));
      // A NaN becomes the integer 0x80000000, whose last byte is 0.
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(scaled)));
    }
    const __m512i sum = lanewise(
        [&](int u) {
          const __m256i unit = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(to + u * unit_weights));
          return _mm512_zextsi256_si512(_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), unit));
        },
        [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); });
    _mm512_storeu_si512(shifts + row * step_units,
                        _mm512_mullo_epi32(sum, _mm512_set1_epi32(-code_shift<kind>)));
    _mm512_storeu_ps(scales + row * step_units, scale);
    _mm512_storeu_ps(sums + row * step_units, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
  }

  KFORMER_SIMD_INLINE static __m512i magnitude_bits(const float* x) {
    return _mm512_and_si512(_mm512_load_si512(x), _mm512_set1_epi32(0x7fffffff));
  }
  /// Lane u is all lanes of `of(u)`, combined.
  template <class Of, class Combine>
  KFORMER_SIMD_INLINE static __m512i lanewise(const Of& of, const Combine& combine) {
    Vector<float> x[step_units];
    KFORMER_SIMD_UNROLL
    for (int u = 0; u < step_units; ++u) x[u] = as_bits<Vector<float> >(of(u));
    transpose<float>(x);
    __m512i all = as_bits<__m512i>(x[0]);
    KFORMER_SIMD_UNROLL
    for (int u = 1; u < step_units; ++u) all = combine(all, as_bits<__m512i>(x[u]));
    return all;
  }
};

/// Some units of the columns of a panel.
struct StepWeights {
  std::uint8_t* codes;      ///< per unit, four along the sum and vector, four codes of each column
  float *scales, *offsets;  ///< per unit and vector, a number of each column

  void lay_out(Scratch& scratch) {
    codes = scratch.take<std::uint8_t>(step_units * unit_weights * int8_panel_cols);
    scales = scratch.take<float>(step_units * int8_panel_cols);
    offsets = scratch.take<float>(step_units * int8_panel_cols);
  }

  /// `from` is the first unit of the first column.
  template <QuantizedFormat kind>
  void pack(const std::uint8_t* from, std::int64_t line, int cols, int units) const {
    for (int v = 0; v * vector_cols < cols; ++v)
      for (int u = 0; u < units; u += 2) {
        const int count = units - u < 2 ? 1 : 2;
        Vector<float> x[vector_cols];
        std::uint16_t halves[2][2][vector_cols] = {};
        for (int i = 0; i < vector_cols; ++i) {
          // The last column replaces missing ones: their products are not stored.
          const int col = v * vector_cols + i < cols ? v * vector_cols + i : cols - 1;
          const std::uint8_t* block = from + col * line + u * Blocks<kind>::bytes;
          const std::uint8_t* next = block + (count - 1) * Blocks<kind>::bytes;
          __builtin_prefetch(block + vector_cols * line, 0, 2);
          x[i] = two_units<kind>(block, next);
          std::memcpy(&halves[0][0][i], block, 2);
          std::memcpy(&halves[1][0][i], next, 2);
          if constexpr (Blocks<kind>::has_offset) {
            std::memcpy(&halves[0][1][i], block + 2, 2);
            std::memcpy(&halves[1][1][i], next + 2, 2);
          }
        }
        transpose<float>(x);
        for (int c = 0; c < count; ++c) {
          const int at = (u + c) * panel_vectors + v;
          for (int q = 0; q < unit_quads; ++q)
            store(reinterpret_cast<float*>(codes +
                                           (((u + c) * unit_quads + q) * panel_vectors + v) * 4 * vector_cols),
                  x[c * unit_quads + q]);
          store(scales + at * vector_cols, numbers(halves[c][0]));
          if constexpr (Blocks<kind>::has_offset) store(offsets + at * vector_cols, numbers(halves[c][1]));
        }
      }
  }

 private:
  KFORMER_SIMD_INLINE static Vector<float> numbers(const std::uint16_t* halves) {
    return as_bits<Vector<float> >(
        _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves))));
  }
  /// The codes of two units of a column, without a sign.
  template <QuantizedFormat kind>
  KFORMER_SIMD_INLINE static Vector<float> two_units(const std::uint8_t* block, const std::uint8_t* next) {
    // Variables, because Clang's intrinsic is a macro: the comma of template arguments would split its arguments.
    const __m256i first = codes_of<kind, 0>(block), second = codes_of<kind, 0>(next);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    if constexpr (kind == QuantizedFormat::q8_0)
      return as_bits<Vector<float> >(_mm512_xor_si512(both, _mm512_set1_epi8(static_cast<char>(-128))));
    else
      return as_bits<Vector<float> >(both);
  }
};

/// Adds the products of `rows` rows, from `row` on, and of the first `vectors` vectors of a panel.
template <QuantizedFormat kind, int rows, int vectors>
KFORMER_SIMD_INLINE void multiply_units(const StepInputs& x, int row, const StepWeights& w, int units,
                                        bool first, float* to, std::int64_t ld) {
  Vector<float> total[rows][vectors];
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v)
      total[r][v] = first ? Vector<float>{} : load(to + r * ld + v * vector_cols);
  }
  for (int u = 0; u < units; ++u) {
    __m512i sum[rows][vectors];
    KFORMER_SIMD_UNROLL
    for (int r = 0; r < rows; ++r) {
      const __m512i start = code_shift<kind> == 0 ? _mm512_setzero_si512()
                                                  : _mm512_set1_epi32(x.shifts[(row + r) * step_units + u]);
      KFORMER_SIMD_UNROLL
      for (int v = 0; v < vectors; ++v) sum[r][v] = start;
    }
    const std::uint8_t* weights = w.codes + u * unit_quads * panel_vectors * 4 * vector_cols;
    const std::int8_t* inputs = x.codes + (row * step_units + u) * unit_weights;
    KFORMER_SIMD_UNROLL
    for (int q = 0; q < unit_quads; ++q) {
      __m512i column[vectors];
      KFORMER_SIMD_UNROLL
      for (int v = 0; v < vectors; ++v)
        column[v] = _mm512_loadu_si512(weights + (q * panel_vectors + v) * 4 * vector_cols);
      KFORMER_SIMD_UNROLL
      for (int r = 0; r < rows; ++r) {
        std::int32_t four;
        std::memcpy(&four, inputs + r * step_units * unit_weights + 4 * q, sizeof(four));
        const __m512i broadcast = _mm512_set1_epi32(four);
        KFORMER_SIMD_UNROLL
        for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], column[v], broadcast);
      }
    }
    KFORMER_SIMD_UNROLL
    for (int r = 0; r < rows; ++r) {
      const Vector<float> scale = splat(x.scales[(row + r) * step_units + u]);
      KFORMER_SIMD_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const float* numbers = w.scales + (u * panel_vectors + v) * vector_cols;
        total[r][v] = fused_multiply_add<float>(as_bits<Vector<float> >(_mm512_cvtepi32_ps(sum[r][v])),
                                                load(numbers) * scale, total[r][v]);
      }
      if constexpr (Blocks<kind>::has_offset) {
        const Vector<float> codes = splat(x.sums[(row + r) * step_units + u]);
        KFORMER_SIMD_UNROLL
        for (int v = 0; v < vectors; ++v)
          total[r][v] = fused_multiply_add<float>(load(w.offsets + (u * panel_vectors + v) * vector_cols),
                                                  codes, total[r][v]);
      }
    }
  }
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) store(to + r * ld + v * vector_cols, total[r][v]);
  }
}

struct Int8PanelTile {
  StepInputs x;
  StepWeights weights;
  float* sums;
  std::int64_t sums_ld;

  std::size_t lay_out(void* memory, int rows, int cols) {
    Scratch scratch(memory);
    x.lay_out(scratch, rows);
    weights.lay_out(scratch);
    // A cache line more than needed keeps rows out of each other's cache sets.
    sums_ld = (cols + int8_panel_cols - 1) / int8_panel_cols * int8_panel_cols + vector_cols;
    sums = scratch.take<float>(rows * sums_ld);
    return scratch.bytes();
  }

  /// All rows times the panel that begins at column `col`, of which there are `cols`.
  template <QuantizedFormat kind>
  void multiply(int rows, int col, int cols, int units, bool first) const {
    const auto rows_times = [&]<int vectors>() {
      for (int row = 0; row < rows; row += panel_rows)
        with_block<panel_rows>(rows - row, [&]<int count>() {
          multiply_units<kind, count, vectors>(x, row, weights, units, first, sums + row * sums_ld + col,
                                               sums_ld);
        });
    };
    if (cols > 2 * vector_cols)
      rows_times.template operator()<3>();
    else if (cols > vector_cols)
      rows_times.template operator()<2>();
    else
      rows_times.template operator()<1>();
  }
};

inline std::size_t int8_panel_scratch(std::int64_t, int rows, int cols) {
  return Int8PanelTile{}.lay_out(nullptr, rows, cols);
}

template <class T, QuantizedFormat kind>
void int8_panel_tile(const ProductArguments& p, const ProductTile& tile, void* scratch) {
  Int8PanelTile all{};
  all.lay_out(scratch, tile.rows, tile.cols);
  const std::int64_t units = blocks_of<kind>(p.inner);
  if (units == 0)
    for (int r = 0; r < tile.rows; ++r) clear(all.sums + r * all.sums_ld, padded<float>(tile.cols));
  for (std::int64_t unit = 0; unit < units; unit += step_units) {
    const int count = static_cast<int>(smaller(step_units, units - unit));
    all.x.template encode<T, kind>(p, tile, unit, count);
    for (int col = 0; col < tile.cols; col += int8_panel_cols) {
      const int cols = static_cast<int>(smaller(int8_panel_cols, tile.cols - col));
      const auto* from = static_cast<const std::uint8_t*>(p.right.data) +
                         (tile.col + col) * p.right.index_stride + unit * Blocks<kind>::bytes;
      all.weights.template pack<kind>(from, p.right.index_stride, cols, count);
      all.template multiply<kind>(tile.rows, col, cols, count, unit == 0);
    }
  }
  store_result<T>(p, tile, all.sums, all.sums_ld);
}

#endif

}  // namespace kformer::Impl::simd::KFORMER_ISA
