// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/quantized_format.hpp"
#include "ops/linear/host/arguments.hpp"

/// \file
/// Products with quantised right factors as the host's SIMD kernels see them. Free of Kokkos.

namespace kformer::Impl::host {

/// Tiles that read every weight once. Of `ProductArguments`, `right` has the blocks, its index stride in bytes.
struct QuantizedDots {
  std::size_t (*scratch)(std::int64_t inner, int rows, int cols);
  void (*run)(const ProductArguments&, const ProductTile&, void* scratch);
};

/// Columns that `int8_panels` packs together.
inline constexpr std::int64_t int8_panel_cols = 48;

/// The kernels of one instruction set, storage type and format.
struct QuantizedKernels {
  QuantizedDots dots;         ///< weights as numbers, few rows
  LinearKernels panels;       ///< weights as numbers, packed into panels, many rows; `run_summed` is null
  QuantizedDots int8;         ///< activations of 8 bits; null for NF4, which refuses them
  QuantizedDots int8_panels;  ///< the same, packed, many rows; null where `int8` is faster
  LinearKernels across;       ///< weights as numbers, summed along their columns; `run_summed` is null
};

template <Isa isa>
const QuantizedKernels& quantized_kernels(DType storage, QuantizedFormat kind);

}  // namespace kformer::Impl::host
