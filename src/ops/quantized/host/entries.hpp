// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/quantized.hpp"
#include "ops/linear/host/entries.hpp"
#include "ops/quantized/host/arguments.hpp"

/// \file
/// The linear map by quantised weights, and its gradient, on the host by SIMD kernels.

namespace kformer::Impl::host {

/// Up to this many rows the weights of a tile are turned into numbers for four rows at a time; with more they
/// are packed.
inline constexpr std::int64_t most_dot_rows = 8;

/// Activations of 8 bits are packed, too, if they have more rows than share a pass over weights that are not, and
/// a row then has other bits.
inline constexpr std::int64_t most_int8_rows = 4;

/// The terms of an adapter; `right` lies along the sum in forward, and across it in backward.
inline ProductTerms terms_of(const AdapterTerms& adapter, bool across) {
  if (!adapter.present()) return {};
  const std::int64_t stride = adapter.right.stride[0];
  return {adapter.rank(),
          {adapter.left.data, adapter.left.stride[0], 1},
          {adapter.right.data, across ? 1 : stride, across ? stride : 1}};
}

/// What is behind the rows of a matrix.
inline const void* tail_of(const QuantizedMatrix& weight) {
  if (has_separate_rows(weight.format) || !weight.data) return nullptr;
  return weight.data + weight.rows * quantized_row_bytes(weight.format, weight.cols);
}

template <class Exec, Isa isa>
struct QuantizedLinearEntry {
  using P = QuantizedLinearForward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (p.x.dtype == DType::f64) return "operands are stored as f64, but it computes in float";
    if (p.options.activations == Activations::int8 && !has_integer_codes(p.weight.format))
      return "it multiplies 8-bit activations with integers, but the weights are values of a table";
    std::string refused = processor_refusal<isa>();
    if (!refused.empty() || packs(p)) return refused;
    const std::int64_t rows = tiles(p, 1).rows;
    return too_big<Exec>(dots(p).scratch(p.weight.cols, static_cast<int>(rows),
                                         packs_int8(p) ? most_panel_tile_cols : most_pass_tile_cols));
  }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& panels = kernels(p).panels;
    const ProductArguments a = arguments(p);
    const std::int64_t rows = p.y.extent[0], cols = p.y.extent[1];
    if (packs(p)) {
      for_each_product_tile(
          label, exec, rows, cols, LinearTiles(rows, cols, panels, exec.concurrency()), panels,
          [=, run = panels.run](const ProductTile& tile, void* scratch) { run(a, tile, scratch); });
      return;
    }
    const TileExtents extents = tiles(p, exec.concurrency());
    const QuantizedDots& kernel = dots(p);
    const std::int64_t row_tiles = ceil_div(rows, extents.rows);
    for_each_tile(label, exec, row_tiles * ceil_div(cols, extents.cols),
                  kernel.scratch(a.inner, static_cast<int>(extents.rows), static_cast<int>(extents.cols)),
                  [=, run = kernel.run](std::int64_t rank, void* scratch) {
                    const std::int64_t row = rank % row_tiles * extents.rows,
                                       col = rank / row_tiles * extents.cols;
                    run(a,
                        {row, col, static_cast<int>(std::min(extents.rows, rows - row)),
                         static_cast<int>(std::min(extents.cols, cols - col))},
                        scratch);
                  });
  }

 private:
  static constexpr const char* label = "kformer::quantized_linear_forward[simd]";
  static constexpr int most_pass_tile_cols = 1024, most_panel_tile_cols = 2048;

  struct TileExtents {
    std::int64_t rows, cols;
  };

  static const QuantizedKernels& kernels(const P& p) {
    return quantized_kernels<built<isa>>(p.x.dtype, p.weight.format);
  }
  static bool packs(const P& p) {
    return p.options.activations == Activations::full &&
           (p.options.batch_invariant || p.x.extent[0] > most_dot_rows || p.adapter.present());
  }
  static bool packs_int8(const P& p) {
    return p.options.activations == Activations::int8 && !p.options.batch_invariant &&
           p.x.extent[0] > most_int8_rows && kernels(p).int8_panels.run;
  }
  static const QuantizedDots& dots(const P& p) {
    if (p.options.activations == Activations::full) return kernels(p).dots;
    return packs_int8(p) ? kernels(p).int8_panels : kernels(p).int8;
  }
  static TileExtents tiles(const P& p, std::int64_t threads) {
    const std::int64_t rows = std::max<std::int64_t>(p.y.extent[0], 1), cols = p.y.extent[1];
    return packs_int8(p) ? panel_tiles(rows, cols, threads) : pass_tiles(p, rows, cols, threads);
  }
  /// Every tile turns its rows of x into what it needs, so that with more rows it must have more columns to do.
  static TileExtents pass_tiles(const P& p, std::int64_t rows, std::int64_t cols, std::int64_t threads) {
    const std::int64_t most_rows = p.options.activations == Activations::full ? most_dot_rows : 32;
    return {std::min(rows, most_rows),
            std::clamp<std::int64_t>(ceil_div<std::int64_t>(cols, 4 * threads), 8, most_pass_tile_cols)};
  }
  /// The sums of a tile stay in the second cache.
  static TileExtents panel_tiles(std::int64_t rows, std::int64_t cols, std::int64_t threads) {
    const std::int64_t row_tiles = ceil_div<std::int64_t>(rows, 128),
                       col_tiles = std::max(ceil_div<std::int64_t>(cols, most_panel_tile_cols),
                                            ceil_div(4 * threads, row_tiles)),
                       panels = ceil_div(ceil_div(cols, col_tiles), int8_panel_cols);
    return {ceil_div(rows, row_tiles), std::max<std::int64_t>(panels, 1) * int8_panel_cols};
  }
  static ProductArguments arguments(const P& p) {
    return {p.y.extent[0],
            p.weight.cols,
            {p.x.data, p.x.stride[0], 1},
            {p.weight.data, quantized_row_bytes(p.weight.format, p.weight.cols), 1},
            p.y.data,
            p.y.stride[0],
            p.residual.data,
            p.residual.present() ? p.residual.stride[0] : 0,
            p.options.scale,
            tail_of(p.weight),
            terms_of(p.adapter, false)};
  }
};

template <class Exec, Isa isa>
struct QuantizedBackwardInputEntry {
  using P = QuantizedLinearBackwardInput;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (p.dy.dtype == DType::f64) return "operands are stored as f64, but it computes in float";
    return processor_refusal<isa>();
  }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernel = quantized_kernels<built<isa>>(p.dy.dtype, p.weight.format).across;
    const std::int64_t rows = p.dx.extent[0], cols = p.dx.extent[1];
    const ProductArguments a{rows,
                             p.weight.rows,
                             {p.dy.data, p.dy.stride[0], 1},
                             {p.weight.data, 1, quantized_row_bytes(p.weight.format, p.weight.cols)},
                             p.dx.data,
                             p.dx.stride[0],
                             p.addend.data,
                             p.addend.present() ? p.addend.stride[0] : 0,
                             p.options.scale,
                             tail_of(p.weight),
                             terms_of(p.adapter, true)};
    for_each_product_tile(
        "kformer::quantized_linear_backward_input[simd]", exec, rows, cols,
        LinearTiles(rows, cols, kernel, exec.concurrency()), kernel,
        [=, run = kernel.run](const ProductTile& tile, void* scratch) { run(a, tile, scratch); });
  }
};

}  // namespace kformer::Impl::host
