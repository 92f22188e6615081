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
    const std::string refused = processor_refusal<isa>();
    if (!refused.empty() || packs(p)) return refused;
    return too_big<Exec>(dots(p).scratch(p.weight.cols, static_cast<int>(tile_rows(p)), most_tile_cols));
  }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& panels = kernels(p).panels;
    const ProductArguments a = arguments(p);
    const std::int64_t rows = p.y.extent[0], cols = p.y.extent[1];
    LinearTiles tiles(rows, cols, panels.panel_cols, exec.concurrency());
    if (packs(p)) {
      for_each_product_tile(
          label, exec, rows, cols, tiles, panels,
          [=, run = panels.run](const ProductTile& tile, void* scratch) { run(a, tile, scratch); });
      return;
    }
    tiles.rows = tile_rows(p);
    tiles.cols =
        std::clamp<std::int64_t>(ceil_div<std::int64_t>(cols, 4 * exec.concurrency()), 8, most_tile_cols);
    const QuantizedDots& kernel = dots(p);
    const std::int64_t row_tiles = ceil_div(rows, tiles.rows);
    for_each_tile(label, exec, tiles.count(rows, cols),
                  kernel.scratch(a.inner, static_cast<int>(tiles.rows), static_cast<int>(tiles.cols)),
                  [=, run = kernel.run](std::int64_t rank, void* scratch) {
                    const std::int64_t row = rank % row_tiles * tiles.rows, col = rank / row_tiles * tiles.cols;
                    run(a,
                        {row, col, static_cast<int>(std::min(tiles.rows, rows - row)),
                         static_cast<int>(std::min(tiles.cols, cols - col))},
                        scratch);
                  });
  }

 private:
  static constexpr const char* label = "kformer::quantized_linear_forward[simd]";
  static constexpr int most_tile_cols = 1024;

  static const QuantizedKernels& kernels(const P& p) {
    return quantized_kernels<built<isa>>(p.x.dtype, p.weight.format);
  }
  static bool packs(const P& p) {
    return p.options.activations == Activations::full &&
           (p.options.batch_invariant || p.x.extent[0] > most_dot_rows || p.adapter.present());
  }
  static const QuantizedDots& dots(const P& p) {
    return p.options.activations == Activations::full ? kernels(p).dots : kernels(p).int8;
  }
  /// Every tile turns its rows of x into what it needs, so that with more rows it must have more columns to do.
  static std::int64_t tile_rows(const P& p) {
    return std::clamp<std::int64_t>(p.x.extent[0], 1,
                                    p.options.activations == Activations::full ? most_dot_rows : 32);
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
        LinearTiles(rows, cols, kernel.panel_cols, exec.concurrency()), kernel,
        [=, run = kernel.run](const ProductTile& tile, void* scratch) { run(a, tile, scratch); });
  }
};

}  // namespace kformer::Impl::host
