// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/scratch.hpp"
#include "ops/linear/host/few_rows.hpp"

/// \file
/// One tile of a matrix product. The right factor is packed into panels of three vectors of columns, the left
/// one, in parts that stay in the second-level cache, into blocks of rows or as rows, or it is used where it
/// lies if it lies along the summed index and needs no conversion. Sums are kept in the type of arithmetic
/// until the whole tile is done.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Numbers along the summed index that are packed at a time.
inline constexpr int product_depth = 256;

/// Rows of the left factor that are packed at a time.
inline constexpr int packed_rows = 256;

/// Columns of a panel.
template <class T>
inline constexpr int panel_cols = block_vectors * width<Arithmetic<T>>;

/// The right factor as numbers of a storage type.
template <class T>
struct StoredRight {
  explicit StoredRight(const ProductArguments& p) : factor(p.right) {}
  explicit StoredRight(const ProductFactor& f) : factor(f) {}

  /// Packs `cols` × `count` numbers from a column and summed index on.
  template <class To>
  void pack(std::int64_t col, std::int64_t inner, int cols, int count, const To& to) const {
    const T* from =
        static_cast<const T*>(factor.data) + col * factor.index_stride + inner * factor.inner_stride;
    if (factor.inner_stride == 1)
      pack_along_sum(from, factor.index_stride, cols, count, to);
    else
      pack_across_sum(from, factor.inner_stride, cols, count, to);
  }

  const ProductFactor& factor;
};

/// result = alpha·sums + addend, stored as O. Takes whole vectors of sums, and changes them.
template <class O, class C>
void store_result(const ProductArguments& p, const ProductTile& tile, C* sums, std::int64_t ld) {
  constexpr int W = width<C>;
  for (int r = 0; r < tile.rows; ++r) {
    O* to = static_cast<O*>(p.result) + (tile.row + r) * p.row_stride + tile.col;
    C* row = sums + r * ld;
    if (p.alpha != 1)
      for (int c = 0; c < tile.cols; c += W) store<C>(row + c, load(row + c) * splat(static_cast<C>(p.alpha)));
    if (p.addend) {
      const O* more = static_cast<const O*>(p.addend) + (tile.row + r) * p.addend_row_stride + tile.col;
      for (int c = 0; c < tile.cols; c += W) {
        C x[W];
        load_row(more + c, tile.cols - c < W ? tile.cols - c : W, x);
        store<C>(row + c, load(row + c) + load(x));
      }
    }
    store_row(row, tile.cols, to);
  }
}

/// `Right` packs the right factor: `StoredRight`, or what makes numbers of something else on the way.
template <class T, class Right = StoredRight<T>>
struct LinearTile {
  using C = Arithmetic<T>;
  static constexpr int W = width<C>, cols_of_panel = panel_cols<T>;
  // A cache line more than needed keeps rows out of each other's cache sets.
  static constexpr std::int64_t panel_stride = cols_of_panel * padded<C>(operands<T>(product_depth));
  static constexpr std::int64_t left_stride = operands<T>(product_depth) + 64 / static_cast<int>(sizeof(C));

  const ProductArguments& p;
  ProductTile tile;
  Operand<T>*left, *right;
  C* sums;
  std::int64_t sums_stride;

  static std::size_t scratch_bytes(int rows, int cols) {
    LinearTile x{{}, {0, 0, rows, cols}};
    return x.lay_out(nullptr);
  }

  std::size_t lay_out(void* memory) {
    Scratch scratch(memory);
    const int panels = (tile.cols + cols_of_panel - 1) / cols_of_panel;
    sums_stride = panels * cols_of_panel + 64 / static_cast<int>(sizeof(C));
    right = scratch.take<Operand<T>>(panels * panel_stride);
    left = scratch.take<Operand<T>>(smaller(packed_rows, padded<C>(tile.rows) + block_rows) * left_stride);
    sums = scratch.take<C>(tile.rows * sums_stride);
    return scratch.bytes();
  }

  void sum_up() {
    if (p.inner == 0)
      for (int r = 0; r < tile.rows; ++r) clear(sums + r * sums_stride, padded<C>(tile.cols));
    add(p.left, Right(p), p.inner, true);
  }

  /// Adds the terms of the second product to the sums.
  void add_more() { add(p.more.left, StoredRight<T>(p.more.right), p.more.inner, false); }

 private:
  // The sums start with these terms, or they are there already.
  template <class R>
  void add(const ProductFactor& rows_of, const R& columns_of, std::int64_t all, bool starts) {
    for (std::int64_t inner = 0; inner < all; inner += product_depth) {
      const int count = static_cast<int>(smaller(product_depth, all - inner));
      columns_of.pack(tile.col, inner, tile.cols, count,
                      Panels<C, cols_of_panel>{reinterpret_cast<C*>(right), panel_stride});
      for (int row = 0; row < tile.rows; row += packed_rows)
        add_rows(rows_of, row, static_cast<int>(smaller(packed_rows, tile.rows - row)), inner, count,
                 starts && inner == 0);
    }
  }

  void add_rows(const ProductFactor& factor, int row, int rows, std::int64_t inner, int count, bool first) {
    const int depth = operands<T>(count);
    C* packed = reinterpret_cast<C*>(left);
    const T* from = static_cast<const T*>(factor.data) + (tile.row + row) * factor.index_stride +
                    inner * factor.inner_stride;
    if (factor.inner_stride != 1) {
      pack_across_sum(from, factor.inner_stride, rows, count,
                      Panels<C, block_rows>{packed, block_rows * left_stride});
      multiply<Left::by_block>(row, rows, left, left_stride, depth, first);
    } else if (is_ready(factor, count)) {
      multiply<Left::by_row>(row, rows, reinterpret_cast<const Operand<T>*>(from),
                             factor.index_stride / per_operand<T>, depth, first);
    } else {
      pack_along_sum(from, factor.index_stride, rows, count, Rows<C>{packed, left_stride});
      multiply<Left::by_row>(row, rows, left, left_stride, depth, first);
    }
  }

  // Whether products can read the left factor in place.
  static bool is_ready(const ProductFactor& factor, int count) {
    if (sizeof(T) * per_operand<T> != sizeof(Operand<T>)) return false;
    return count % per_operand<T> == 0 && factor.index_stride % per_operand<T> == 0 &&
           reinterpret_cast<std::uintptr_t>(factor.data) % alignof(Operand<T>) == 0;
  }

  /// Adds the product of all rows and panels to the sums.
  template <Left order>
  void multiply(int row, int rows, const Operand<T>* factor, std::int64_t stride, int depth, bool first) const {
    for (int col = 0, panel = 0; col < tile.cols; col += cols_of_panel, ++panel) {
      const int cols = tile.cols - col < cols_of_panel ? tile.cols - col : cols_of_panel;
      const auto product = [&]<Start start, int n>() {
        product_panel<order, start, n>(rows, depth, factor, stride, right + panel * panel_stride, cols_of_panel,
                                       sums + row * sums_stride + col, sums_stride);
      };
      const auto started = [&]<int n>() {
        if (first)
          product.template operator()<Start::zero, n>();
        else
          product.template operator()<Start::sum, n>();
      };
      static_assert(block_vectors == 3);
      if (cols > 2 * W)
        started.template operator()<3>();
      else if (cols > W)
        started.template operator()<2>();
      else
        started.template operator()<1>();
    }
  }
};

/// `Tile` sums: `LinearTile`, or one with other instructions.
template <class T, class O, class Tile = LinearTile<T>>
void linear_tile(const ProductArguments& p, const ProductTile& part, void* scratch) {
  Tile tile{p, part};
  tile.lay_out(scratch);
  if (!p.batch_invariant && p.rows <= few_rows && p.left.inner_stride == 1 && p.right.inner_stride == 1)
    sum_few_rows<T>(p, part, tile.sums, tile.sums_stride);
  else
    tile.sum_up();
  tile.add_more();
  store_result<O>(p, part, tile.sums, tile.sums_stride);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
