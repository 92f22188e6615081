// SPDX-License-Identifier: MIT
#pragma once

#include <limits>

#include "ops/common/label.hpp"
#include "ops/common/simd_entries.hpp"
#include "ops/linear/host/arguments.hpp"
#include "ops/linear/product.hpp"

/// \file
/// The products on the host by SIMD kernels that pack their operands themselves: 16-bit numbers are converted
/// then, or with AVX512_BF16 multiplied as they are.

namespace kformer::Impl::host {

/// The tiles of the result, one thread each, such that the busiest thread has the least to do. An element of the
/// result is summed in the same order in any tile.
struct LinearTiles {
  std::int64_t rows, cols;

  /// `packs_left` if kernels pack both factors, not only the right one: wide tiles do so less often.
  LinearTiles(std::int64_t all_rows, std::int64_t all_cols, const LinearKernels& kernels, int threads,
              bool packs_left = false)
      : rows(0), cols(0) {
    double least = std::numeric_limits<double>::infinity();
    for (const std::int64_t r : {64, 128, 256, 512})
      for (const std::int64_t panels : {1, 2, 3, 4, 6, 12, 24}) {
        if (panels > (packs_left ? kernels.most_panels : usual_panels)) break;
        const LinearTiles other(r, panels * kernels.panel_cols);
        const double more = other.work(all_rows, all_cols, threads, packs_left);
        if (more < least) least = more, *this = other;
      }
  }
  std::int64_t count(std::int64_t all_rows, std::int64_t all_cols) const {
    return ceil_div(all_rows, rows) * ceil_div(all_cols, cols);
  }

 private:
  LinearTiles(std::int64_t r, std::int64_t c) : rows(r), cols(c) {}

  // Of the busiest thread, in elements of the result. Packing a column of the right factor takes as long as `right`
  // rows of products, packing or reading a row of the left one as long as `left` columns. Measured with AVX-512;
  // what reads the left factor in place, on idle cores with operands that come from memory.
  double work(std::int64_t all_rows, std::int64_t all_cols, int threads, bool packs_left) const {
    constexpr double right = 24, start = 64;
    const double left = packs_left ? 24 : 12, wait_at_end = threads == 1 ? 0 : packs_left ? 0.25 : 0.05;
    const auto r = static_cast<double>(std::min(rows, all_rows)),
               c = static_cast<double>(std::min(cols, all_cols));
    const auto turns = static_cast<double>(ceil_div<std::int64_t>(count(all_rows, all_cols), threads));
    return (turns + wait_at_end) * (r * c + right * c + left * r + start);
  }
};

/// Whether the kernels of an instruction set pack a left factor: they read it in place if it lies along the summed
/// index in a type that they multiply, in rows that do not share sets of the caches.
template <Isa isa, class T>
bool packs(const Factor<T>& left) {
  constexpr bool converts = sizeof(T) == 2 && isa != Isa::avx512_bf16;
  constexpr bool few_registers = is_built<Isa::avx2> && (isa == Isa::avx2 || isa == Isa::generic);
  return converts || left.inner_stride != 1 ||
         (few_registers && rows_collide(left.index_stride * static_cast<int>(sizeof(T))));
}

template <class T, class O>
ProductArguments product_arguments(const MatrixProduct<T, O>& q) {
  const auto factor = [](const Factor<T>& f) { return ProductFactor{f.data, f.index_stride, f.inner_stride}; };
  return {q.rows,
          q.inner,
          factor(q.left),
          factor(q.right),
          q.result,
          q.row_stride,
          q.addend,
          q.addend_row_stride,
          q.alpha,
          nullptr,
          {q.more_inner, factor(q.more_left), factor(q.more_right)},
          q.batch_invariant};
}

/// `f(matrix, tile, scratch)` for the tiles of results of `rows` × `cols`.
template <class Exec, class F>
void for_each_product_tile(const char* label, const Exec& exec, std::int64_t matrices, std::int64_t rows,
                           std::int64_t cols, const LinearTiles& tiles, std::size_t scratch_bytes, F f) {
  const std::int64_t row_tiles = ceil_div(rows, tiles.rows), of_one = tiles.count(rows, cols);
  for_each_tile(label, exec, matrices * of_one, scratch_bytes, [=](std::int64_t rank, void* scratch) {
    const std::int64_t place = rank % of_one;
    const std::int64_t row = place % row_tiles * tiles.rows, col = place / row_tiles * tiles.cols;
    f(rank / of_one,
      ProductTile{row, col, static_cast<int>(std::min(tiles.rows, rows - row)),
                  static_cast<int>(std::min(tiles.cols, cols - col))},
      scratch);
  });
}

/// `f(tile, scratch)` for those of one result, with the scratch that the kernels need.
template <class Exec, class F>
void for_each_product_tile(const char* label, const Exec& exec, std::int64_t rows, std::int64_t cols,
                           const LinearTiles& tiles, const LinearKernels& kernels, F f) {
  for_each_product_tile(label, exec, 1, rows, cols, tiles,
                        kernels.scratch(static_cast<int>(tiles.rows), static_cast<int>(tiles.cols)),
                        [=](std::int64_t, const ProductTile& tile, void* scratch) { f(tile, scratch); });
}

/// The products of an instruction set, and the vectors that other parts of an entry use beside them.
template <Isa isa>
struct SimdProducts {
  static constexpr Isa vectors = isa;
  static constexpr const char* name = simd_entry<isa>;
  static std::string refusal(DType storage) { return host::refusal<isa>(storage); }
  static const LinearKernels& kernels(DType storage) { return linear_kernels<built<isa>>(storage); }
};

template <class P, class Exec, class Products>
struct LinearEntry {
  static constexpr Kernel<P, Exec> entry() { return {Products::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return Products::refusal(storage_type(p)); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const LinearKernels& kernels = Products::kernels(storage_type(p));
    with_each_product(p, [&]<class T, class O>(const MatrixProduct<T, O>& q) {
      const auto kernel = std::is_same_v<T, O> ? kernels.run : kernels.run_summed;
      for_each_product_tile(
          label<P>(Products::name).c_str(), exec, q.rows, q.cols,
          LinearTiles(q.rows, q.cols, kernels, exec.concurrency(), packs<Products::vectors>(q.left)), kernels,
          [=, a = product_arguments(q)](const ProductTile& tile, void* scratch) { kernel(a, tile, scratch); });
    });
  }
};

}  // namespace kformer::Impl::host
