// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd_entries.hpp"
#include "ops/linear/host/arguments.hpp"
#include "ops/linear/product.hpp"

/// \file
/// The products on the host by SIMD kernels that pack their operands themselves: 16-bit numbers are converted
/// then, or with AVX512_BF16 multiplied as they are.

namespace kformer::Impl::host {

/// The tiles of the result, one thread each; they depend on the problem alone.
struct LinearTiles {
  std::int64_t rows = 256, cols;

  LinearTiles(std::int64_t all_rows, std::int64_t all_cols, std::int64_t panel_cols) : cols(6 * panel_cols) {
    // Enough tiles to occupy many cores, as long as packing a tile costs little beside multiplying it.
    while (tiles(all_rows, all_cols) < 64 && rows > 64) rows /= 2;
    while (tiles(all_rows, all_cols) < 64 && cols > panel_cols) cols -= panel_cols;
  }
  std::int64_t tiles(std::int64_t all_rows, std::int64_t all_cols) const {
    return ceil_div(all_rows, rows) * ceil_div(all_cols, cols);
  }
};

template <class P, class Exec, Isa isa>
struct LinearEntry {
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    const DType storage = storage_type(p);
    if (isa == Isa::avx512_bf16 && storage != DType::bf16)
      return std::string("operands are stored as ") + to_string(storage) + ", it takes bf16";
    return processor_refusal<isa>();
  }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernels = linear_kernels<built<isa>>(storage_type(p));
    with_product(p, [&]<class T, class O>(const MatrixProduct<T, O>& q) {
      const auto kernel = std::is_same_v<T, O> ? kernels.run : kernels.run_summed;
      const ProductArguments a{q.inner,
                               {q.left.data, q.left.index_stride, q.left.inner_stride},
                               {q.right.data, q.right.index_stride, q.right.inner_stride},
                               q.result,
                               q.row_stride,
                               q.addend,
                               q.addend_row_stride,
                               q.alpha};
      const LinearTiles tile(q.rows, q.cols, kernels.panel_cols);
      const std::int64_t row_tiles = ceil_div(q.rows, tile.rows);
      for_each_tile(label<P>(simd_entry<isa>).c_str(), exec, tile.tiles(q.rows, q.cols),
                    kernels.scratch(static_cast<int>(tile.rows), static_cast<int>(tile.cols)),
                    [=, rows = q.rows, cols = q.cols](std::int64_t rank, void* scratch) {
                      const std::int64_t row = rank % row_tiles * tile.rows, col = rank / row_tiles * tile.cols;
                      kernel(a,
                             {row, col, static_cast<int>(std::min(tile.rows, rows - row)),
                              static_cast<int>(std::min(tile.cols, cols - col))},
                             scratch);
                    });
    });
  }
};

/// The list entry, on host spaces.
template <class P, class Exec, Isa isa>
constexpr auto linear_entries() {
  if constexpr (is_host_space<Exec>)
    return std::array<Kernel<P, Exec>, 1>{{LinearEntry<P, Exec, isa>::entry()}};
  else
    return std::array<Kernel<P, Exec>, 0>{};
}

}  // namespace kformer::Impl::host
