// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/entries.hpp"
#include "ops/lora/products.hpp"

/// \file
/// Adapters on the host: the SIMD kernels of products, which take the terms of a second product.

namespace kformer::Impl::host {

template <class P, class Exec, Isa isa>
struct LoraEntry {
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(storage_type(p)); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernels = linear_kernels<built<isa>>(storage_type(p));
    with_lora_products(p, [&]<class T>(const LoraProducts<T>& all) {
      const auto launch = [&](const MatrixProduct<T, T>& q) {
        for_each_product_tile(
            label<P>(simd_entry<isa>).c_str(), exec, q.rows, q.cols,
            LinearTiles(q.rows, q.cols, kernels.panel_cols, exec.concurrency(), packs<isa>(q.left)), kernels,
            [=, run = kernels.run, a = product_arguments(q)](const ProductTile& tile, void* scratch) {
              run(a, tile, scratch);
            });
      };
      for (std::size_t i = 0; i < all.low_count; ++i) launch(all.low[i]);
      for (std::size_t i = 0; i < all.full_count; ++i) launch(all.full[i]);
    });
  }
};

}  // namespace kformer::Impl::host
