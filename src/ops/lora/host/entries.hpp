// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/amx/products.hpp"
#include "ops/lora/products.hpp"

/// \file
/// Adapters on the host: the SIMD kernels of products, which take the terms of a second product.

namespace kformer::Impl::host {

template <class P, class Exec, class Products>
struct LoraEntry {
  static constexpr Kernel<P, Exec> entry() { return {Products::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return Products::refusal(storage_type(p)); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernels = Products::kernels(storage_type(p));
    with_lora_products(p, [&]<class T>(const LoraProducts<T>& all) {
      const auto launch = [&](const MatrixProduct<T, T>& q) {
        for_each_product_tile(
            label<P>(Products::name).c_str(), exec, q.rows, q.cols,
            LinearTiles(q.rows, q.cols, kernels, exec.concurrency(), packs<Products::vectors>(q.left)), kernels,
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
