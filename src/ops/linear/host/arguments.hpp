// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/common/simd/isa.hpp"

/// \file
/// A matrix product as the host's SIMD kernels see it. Free of Kokkos.

namespace kformer::Impl::host {

/// Element (index, inner) is `data[index·index_stride + inner·inner_stride]`; one of the strides is 1.
struct ProductFactor {
  const void* data;
  std::int64_t index_stride, inner_stride;
};

/// Terms that are added to a product: Σ_inner left(row, inner)·right(col, inner).
struct ProductTerms {
  std::int64_t inner;
  ProductFactor left, right;
};

/// result(row, col) = alpha·(Σ_inner left(row, inner)·right(col, inner) + more(row, col)) + addend(row, col).
struct ProductArguments {
  std::int64_t rows;  ///< of the whole result: few of them are summed in another order
  std::int64_t inner;
  ProductFactor left, right;
  void* result;
  std::int64_t row_stride;
  const void* addend;  ///< null for none; may be `result`
  std::int64_t addend_row_stride;
  double alpha;
  const void* tail = nullptr;  ///< of a quantised right factor: what is behind its rows
  ProductTerms more{};
  bool batch_invariant = false;  ///< rows are summed alike, however many there are
};

/// Whether rows so many bytes apart share few sets of the caches. Kernels with 16 vector registers then pack rows of a left
/// factor that they could read in place. Measured with AVX2; on an Intel Xeon with AVX-512 a packed left factor brought
/// nothing.
constexpr bool rows_collide(std::int64_t bytes) { return bytes != 0 && bytes % 4096 == 0; }

/// A part of the result.
struct ProductTile {
  std::int64_t row, col;
  int rows, cols;
};

/// Panels of the widest tile, unless a packed left factor calls for more.
inline constexpr int usual_panels = 12;

/// The kernels of one instruction set and storage type.
struct LinearKernels {
  int panel_cols;   ///< tiles are best multiples of it wide
  int most_panels;  ///< of a tile whose left factor is packed
  std::size_t (*scratch)(int rows, int cols);
  void (*run)(const ProductArguments&, const ProductTile&, void* scratch);  ///< result stored as the factors
  void (*run_summed)(const ProductArguments&, const ProductTile&,
                     void* scratch);  ///< as the type of arithmetic
};

template <Isa isa>
const LinearKernels& linear_kernels(DType storage);

}  // namespace kformer::Impl::host
