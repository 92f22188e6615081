// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/scratch.hpp"
#include "ops/linear/host/few_rows.hpp"

/// \file
/// One tile of a matrix product. The right factor is packed into panels of three vectors of columns, the left
/// one, in parts that stay in the second-level cache, into blocks of rows or as rows, or it is used where it
/// lies if it lies along the summed index and needs no conversion, unless rows_collide. Sums are kept in the type of
/// arithmetic until the whole tile is done.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Rows of the left factor that are packed at a time.
inline constexpr int packed_rows = 256;

/// Columns of a panel.
template <class T>
inline constexpr int panel_cols = block_vectors * width<Arithmetic<T>>;

/// Panels of the widest tile with a packed left factor: sums of a row in 2304 bytes.
template <class T>
inline constexpr int most_panels = 2304 / static_cast<int>(panel_cols<T> * sizeof(Arithmetic<T>));

/// The right factor as numbers of a storage type.
template <class T>
struct StoredRight {
  /// Numbers along the summed index that are packed at a time, at most, and what their number is a multiple of. A
  /// panel of them, narrower where there are few registers, leaves room in the first cache for rows of the left factor.
  static constexpr int depth = (vector_registers == 32 ? 160 : 256) * per_operand<T>,
                       unit = 16 * per_operand<T>;

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
  static constexpr int depth = Right::depth > StoredRight<T>::depth ? Right::depth : StoredRight<T>::depth;
  // A cache line more than needed keeps rows out of each other's cache sets.
  static constexpr std::int64_t panel_stride = cols_of_panel * padded<C>(operands<T>(depth));
  static constexpr std::int64_t left_stride = operands<T>(depth) + 64 / static_cast<int>(sizeof(C));

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
    if (p.inner == 0 && p.more.inner == 0)
      for (int r = 0; r < tile.rows; ++r) clear(sums + r * sums_stride, padded<C>(tile.cols));
    sum_up_to(sums, sums_stride);
  }

  /// The terms of both products, of which there are some; the last of them, and then an addend, are added where the
  /// sums shall lie.
  void sum_up_to(C* to, std::int64_t ld, const C* addend = nullptr, std::int64_t ld_addend = 0) {
    add(p.more.left, StoredRight<T>(p.more.right), p.more.inner, Start::zero, {sums, sums_stride});
    add(p.left, Right(p), p.inner, p.more.inner == 0 ? Start::zero : Start::sum,
        {sums, sums_stride, to, ld, addend, ld_addend});
  }

  /// Adds the terms of the second product to the sums.
  void add_more() {
    add(p.more.left, StoredRight<T>(p.more.right), p.more.inner, Start::sum, {sums, sums_stride});
  }

 private:
  // `start` is what the sums are before these terms, `last` where the last of them are added, and what to.
  template <class R>
  void add(const ProductFactor& rows_of, const R& columns_of, std::int64_t all, Start start,
           const Sums<C>& last) {
    // Steps of much the same length: a short one would read and write the sums for few terms.
    const std::int64_t steps = (all + R::depth - 1) / R::depth;
    const std::int64_t step = steps == 0 ? 0 : (all + steps * R::unit - 1) / (steps * R::unit) * R::unit;
    for (std::int64_t inner = 0; inner < all; inner += step) {
      const int count = static_cast<int>(smaller(step, all - inner));
      columns_of.pack(tile.col, inner, tile.cols, count,
                      Panels<C, cols_of_panel>{reinterpret_cast<C*>(right), panel_stride});
      Sums<C> part = inner + step < all ? Sums<C>(sums, sums_stride) : last;
      if (part.addend) {
        // An addend to nothing is the sum before.
        if (start == Start::zero) part = {part.addend, part.ld_addend, part.after, part.ld_after};
        start = start == Start::zero ? Start::sum : Start::sum_and_addend;
      }
      for (int row = 0; row < tile.rows; row += packed_rows)
        add_rows(rows_of, row, static_cast<int>(smaller(packed_rows, tile.rows - row)), inner, count, start,
                 part.from(row, 0));
      start = Start::sum;
    }
  }

  void add_rows(const ProductFactor& factor, int row, int rows, std::int64_t inner, int count, Start start,
                const Sums<C>& c) {
    const int terms = operands<T>(count);
    C* packed = reinterpret_cast<C*>(left);
    const T* from = static_cast<const T*>(factor.data) + (tile.row + row) * factor.index_stride +
                    inner * factor.inner_stride;
    if (factor.inner_stride != 1) {
      pack_across_sum(from, factor.inner_stride, rows, count,
                      Panels<C, block_rows>{packed, block_rows * left_stride});
      multiply<Left::by_block>(rows, left, left_stride, terms, start, c);
    } else if (is_ready(factor, count)) {
      multiply<Left::by_row>(rows, reinterpret_cast<const Operand<T>*>(from),
                             factor.index_stride / per_operand<T>, terms, start, c);
    } else {
      pack_along_sum(from, factor.index_stride, rows, count, Rows<C>{packed, left_stride});
      multiply<Left::by_row>(rows, left, left_stride, terms, start, c);
    }
  }

  // Whether products can read the left factor in place, and do.
  static bool is_ready(const ProductFactor& factor, int count) {
    if (vector_registers == 16 && host::rows_collide(factor.index_stride * static_cast<int>(sizeof(T))))
      return false;
    if (sizeof(T) * per_operand<T> != sizeof(Operand<T>)) return false;
    return count % per_operand<T> == 0 && factor.index_stride % per_operand<T> == 0 &&
           reinterpret_cast<std::uintptr_t>(factor.data) % alignof(Operand<T>) == 0;
  }

  /// Adds the product of all rows and panels to the sums.
  template <Left order>
  void multiply(int rows, const Operand<T>* factor, std::int64_t stride, int terms, Start before,
                const Sums<C>& c) const {
    for (int col = 0, panel = 0; col < tile.cols; col += cols_of_panel, ++panel) {
      const int cols = tile.cols - col < cols_of_panel ? tile.cols - col : cols_of_panel;
      const auto product = [&]<Start start, int n>() {
        product_panel<order, start, n, block_rows, Reach::far>(
            rows, terms, factor, stride, right + panel * panel_stride, cols_of_panel, c.from(0, col));
      };
      const auto started = [&]<int n>() {
        if (before == Start::zero)
          product.template operator()<Start::zero, n>();
        else if (before == Start::sum)
          product.template operator()<Start::sum, n>();
        else
          product.template operator()<Start::sum_and_addend, n>();
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

/// Sums up a tile and stores its result: where nothing but an addend follows the sums, the last products do.
template <class O, class Tile>
void finish_tile(Tile& tile, const ProductArguments& p, const ProductTile& part) {
  using C = std::remove_pointer_t<decltype(tile.sums)>;
  if constexpr (std::is_same_v<O, C> && requires { &Tile::sum_up_to; })
    if (p.inner > 0 && p.alpha == 1 && part.cols % width<C> == 0) {
      const auto* addend = static_cast<const O*>(p.addend);
      if (addend) addend += part.row * p.addend_row_stride + part.col;
      return tile.sum_up_to(static_cast<O*>(p.result) + part.row * p.row_stride + part.col, p.row_stride,
                            addend, p.addend_row_stride);
    }
  tile.sum_up();
  store_result<O>(p, part, tile.sums, tile.sums_stride);
}

/// `Tile` sums: `LinearTile`, or one with other instructions.
template <class T, class O, class Tile = LinearTile<T>>
void linear_tile(const ProductArguments& p, const ProductTile& part, void* scratch) {
  Tile tile{p, part};
  tile.lay_out(scratch);
  if (p.batch_invariant || p.rows > few_rows || p.left.inner_stride != 1 || p.right.inner_stride != 1)
    return finish_tile<O>(tile, p, part);
  sum_few_rows<T>(p, part, tile.sums, tile.sums_stride);
  tile.add_more();
  store_result<O>(p, part, tile.sums, tile.sums_stride);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
