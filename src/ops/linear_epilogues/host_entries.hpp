// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/linear_epilogues.hpp"
#include "ops/linear/host/amx/products.hpp"
#include "ops/rope/host/entries.hpp"
#include "ops/swiglu/host/entries.hpp"

/// \file
/// The SIMD kernels of two blocks, tile by tile: what one has just written the other finds in the cache.

namespace kformer::Impl::host {

template <class Exec, class Products>
struct LinearSwigluEntry {
  using P = LinearSwigluForward;
  static constexpr Kernel<P, Exec> entry() { return {Products::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return Products::refusal(p.x.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernels = Products::kernels(p.x.dtype);
    const SwigluForward part = p.swiglu();
    const SwigluForwardArguments swiglu{input_rows(part.gate), input_rows(part.up),
                                        output_rows(part.y, false, {})};
    const auto activation = swiglu_kernels<built<Products::vectors>>(p.x.dtype).forward;
    with_product(p.linear(), [&](const auto& q) {
      const std::int64_t half = q.cols / 2;
      LinearTiles tiles(q.rows, half, kernels, exec.concurrency(), packs<Products::vectors>(q.left));
      tiles.cols = std::max<std::int64_t>(1, tiles.cols / 2 / kernels.panel_cols) * kernels.panel_cols;
      for_each_product_tile(
          "kformer::linear_swiglu_forward[simd]", exec, q.rows, half, tiles, kernels,
          [=, product = kernels.run, a = product_arguments(q)](const ProductTile& gate, void* scratch) {
            ProductTile up = gate;
            up.col += half;
            product(a, gate, scratch);
            product(a, up, scratch);
            activation(swiglu, {gate.row, gate.row + gate.rows, gate.col, gate.cols});
          });
    });
  }
};

template <class Exec, class Products>
struct LinearRopeEntry {
  using P = LinearRopeForward;
  static constexpr Kernel<P, Exec> entry() { return {Products::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return Products::refusal(p.x.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernels = Products::kernels(p.x.dtype);
    const RopeForward part = p.rope();
    const RopeArguments rope = rope_arguments(part, +1);
    const RopeKernels& rotations = rope_kernels<built<Products::vectors>>(p.x.dtype);
    const auto rotate = part.layout == RopeLayout::half_split ? rotations.half_split : rotations.interleaved;
    const std::int64_t head_dim = std::max<std::int64_t>(1, p.head_dim());
    with_product(p.linear(), [&](const auto& q) {
      LinearTiles tiles(q.rows, q.cols, kernels, exec.concurrency(), packs<Products::vectors>(q.left));
      if (head_dim > tiles.cols) tiles.rows = std::min<std::int64_t>(tiles.rows, 256);
      tiles.cols = std::max<std::int64_t>(1, tiles.cols / head_dim) * head_dim;  // whole heads
      for_each_product_tile(
          "kformer::linear_rope_forward[simd]", exec, q.rows, q.cols, tiles, kernels,
          [=, product = kernels.run, a = product_arguments(q), size = size_of(p.x.dtype)](
              const ProductTile& tile, void* scratch) {
            product(a, tile, scratch);
            RopeArguments own = rope;
            own.q.data = static_cast<std::byte*>(rope.q.data) + tile.col * static_cast<std::int64_t>(size);
            own.q.heads = std::min<std::int64_t>(rope.q.heads - tile.col / head_dim, tile.cols / head_dim);
            rotate(own, tile.row, tile.row + tile.rows);
          });
    });
  }
};

}  // namespace kformer::Impl::host
