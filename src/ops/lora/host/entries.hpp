// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/amx/products.hpp"
#include "ops/lora/products.hpp"

/// \file
/// Adapters on the host: the SIMD kernels of products, which take the terms of a second product.

namespace kformer::Impl::host {

/// Rows that one thread takes from x to y, so that no other waits for their products of low rank; 0 if there are
/// too few rows for all threads.
inline std::int64_t rows_of_a_strip(std::int64_t rows, int threads) {
  std::int64_t strip = 256;
  while (ceil_div(rows, strip) < 4 * threads && strip > 64) strip /= 2;
  return ceil_div(rows, strip) >= threads ? strip : 0;
}

template <class P, class Exec, class Products>
struct LoraEntry {
  static constexpr Kernel<P, Exec> entry() { return {Products::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return Products::refusal(storage_type(p)); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernels = Products::kernels(storage_type(p));
    with_lora_products(p, [&](const auto& all) {
      const std::int64_t strip = rows_of_a_strip(all.rows, exec.concurrency());
      if (strip > 0)
        by_strips(exec, all, kernels, strip);
      else
        by_tiles(exec, all, kernels);
    });
  }

 private:
  template <class T>
  static void by_strips(const Exec& exec, const LoraProducts<T>& all, const LinearKernels& kernels,
                        std::int64_t strip) {
    const std::int64_t rows = all.rows, cols = 6 * kernels.panel_cols;
    const auto run_rows = [rows, cols, strip, run = kernels.run](const MatrixProduct<T, T>& q, std::int64_t row,
                                                                 void* scratch) {
      const ProductArguments a = product_arguments(q);
      for (std::int64_t col = 0; col < q.cols; col += cols)
        run(a,
            {row, col, static_cast<int>(std::min(strip, rows - row)),
             static_cast<int>(std::min(cols, q.cols - col))},
            scratch);
    };
    for_each_tile(label<P>(Products::name).c_str(), exec, ceil_div(rows, strip),
                  kernels.scratch(static_cast<int>(strip), static_cast<int>(cols)),
                  [=](std::int64_t rank, void* scratch) {
                    for (std::size_t i = 0; i < all.low_count; ++i) run_rows(all.low[i], rank * strip, scratch);
                    for (std::size_t i = 0; i < all.full_count; ++i)
                      run_rows(all.full[i], rank * strip, scratch);
                  });
  }

  // One launch for each product.
  template <class T>
  static void by_tiles(const Exec& exec, const LoraProducts<T>& all, const LinearKernels& kernels) {
    const auto launch = [&](const MatrixProduct<T, T>& q) {
      for_each_product_tile(label<P>(Products::name).c_str(), exec, q.rows, q.cols,
                            LinearTiles(q.rows, q.cols, kernels.panel_cols, exec.concurrency()), kernels,
                            [=, run = kernels.run, a = product_arguments(q)](
                                const ProductTile& tile, void* scratch) { run(a, tile, scratch); });
    };
    for (std::size_t i = 0; i < all.low_count; ++i) launch(all.low[i]);
    for (std::size_t i = 0; i < all.full_count; ++i) launch(all.full[i]);
  }
};

}  // namespace kformer::Impl::host
