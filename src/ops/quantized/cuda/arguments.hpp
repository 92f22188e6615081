// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/quantized_format.hpp"
#include "ops/common/cuda/launch.hpp"
#include "ops/common/cuda/vectors.hpp"

/// \file
/// The linear map by quantised weights as the CUDA kernels see it. Free of Kokkos.

namespace kformer::Impl::cuda {

/// Rows of W that share a block: several warps, each with a few.
inline constexpr int dot_warps = 4, dot_cols = 2;

/// Rows of x that share a pass over W, where there is more than one.
inline constexpr int dot_rows = 4;

/// Activations of 8 bits: rows of codes, zeros up to whole blocks, and what each group of them shares.
struct Int8Activations {
  /// The scale and, as an integer, the sum of the codes of a group.
  using Numbers = Words<2>;

  std::uint8_t* codes;
  Numbers* numbers;
  std::int64_t row_codes;   ///< in a row, a multiple of 32
  std::int64_t row_groups;  ///< in a row: one per 32 codes, or a single one
};

/// y = scale · (x Wᵀ + xa Bᵀ) + residual.
struct QuantizedDotArguments {
  host::InputRows x, residual, xa, b;  ///< without data where there is none
  host::OutputRows y;
  const std::uint8_t* weight;          ///< at a multiple of 16 bytes
  std::int64_t row_bytes, row_blocks;  ///< of W
  std::int64_t rows, in, out, rank;
  double scale;
  Int8Activations int8;  ///< of x, where x has no data here

  /// Blocks of threads for each `dot_warps · dot_cols` rows of W.
  KFORMER_DEVICE int row_passes() const { return static_cast<int>((rows + dot_rows - 1) / dot_rows); }
  /// What is behind the rows of W.
  KFORMER_DEVICE const std::uint8_t* weight_end() const { return weight + out * row_bytes; }
};

/// With x as it is stored.
/// \throws Error if CUDA refuses the launch
void quantized_dots(Stream stream, DType type, QuantizedFormat format, const QuantizedDotArguments& a);
/// With x quantised to 8 bits, which is written first.
void quantized_int8_dots(Stream stream, DType type, QuantizedFormat format, const QuantizedDotArguments& a);

/// `f.template operator()<T, format, rows>()` for the rows of x of a pass.
template <class F>
void with_dots(DType type, QuantizedFormat format, std::int64_t rows, F f) {
  const auto with_rows = [&]<class T, QuantizedFormat kind>() {
    if (rows == 1)
      f.template operator()<T, kind, 1>();
    else
      f.template operator()<T, kind, dot_rows>();
  };
  with_float_number(type, [&]<class T>() {
    using enum QuantizedFormat;
    switch (format) {
      case q8_0:
        return with_rows.template operator()<T, q8_0>();
      case q4_0:
        return with_rows.template operator()<T, q4_0>();
      case q4_1:
        return with_rows.template operator()<T, q4_1>();
      case tq2_0:
        return with_rows.template operator()<T, tq2_0>();
      case tq1_0:
        return with_rows.template operator()<T, tq1_0>();
      case nf4:
        return with_rows.template operator()<T, nf4>();
    }
  });
}

}  // namespace kformer::Impl::cuda
