// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/amx/configuration.hpp"
#include "ops/linear/host/amx/packing.hpp"
#include "ops/linear/host/tile.hpp"

/// \file
/// Products of bf16 on tile registers. `Machine` has their instructions as static functions: `configure`,
/// `release`, and for registers by number `zero`, `load`, `store` and `multiply_bf16`. It is the processor
/// (instructions.hpp), or an emulation where there is none (tests/support/emulated_amx).

namespace kformer::Impl::simd::KFORMER_ISA {

/// The tile registers of this thread, while it lives. Afterwards they are as a caller expects them: unused.
template <class Machine>
struct TileScope {
  TileScope() { Machine::configure(host::whole_tiles); }
  ~TileScope() { Machine::release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

/// `f.operator()<i>()` for each number below `count`.
template <int count, class F>
KFORMER_SIMD_INLINE void for_each_tile_register(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f.template operator()<i>(), ...);
  }(std::make_integer_sequence<int, count>{});
}

/// Adds a product of `rows` × `cols` tiles to `sums`, or stores it there if it is the first. The packed
/// factors have `steps` tiles along the summed index.
template <class Machine, int rows, int cols>
void multiply_tiles(int steps, const float* left, const float* right, float* sums, std::int64_t ld,
                    bool first) {
  constexpr int left_register = rows * cols, right_register = left_register + rows;
  static_assert(right_register + cols <= 8);
  constexpr std::int64_t packed_row = tile_side * sizeof(float);
  const std::int64_t row = ld * static_cast<std::int64_t>(sizeof(float));
  const auto place = [=](int i) { return sums + (i / cols * ld + i % cols) * tile_side; };
  for_each_tile_register<rows * cols>([&]<int i>() {
    if (first)
      Machine::template zero<i>();
    else
      Machine::template load<i>(place(i), row);
  });
  for (int step = 0; step < steps; ++step) {
    for_each_tile_register<rows>([&]<int i>() {
      Machine::template load<left_register + i>(left + (i * steps + step) * tile_size, packed_row);
    });
    for_each_tile_register<cols>([&]<int i>() {
      Machine::template load<right_register + i>(right + (i * steps + step) * tile_size, packed_row);
    });
    for_each_tile_register<rows * cols>([&]<int i>() {
      Machine::template multiply_bf16<i, left_register + i / cols, right_register + i % cols>();
    });
  }
  for_each_tile_register<rows * cols>([&]<int i>() { Machine::template store<i>(place(i), row); });
}

/// One tile of a result. Every element is summed in steps of 32 neighbours along the summed index, in their
/// order: those with even and with odd places apart, then their sum is added to that of the steps before.
/// Nothing else plays a part in it.
template <class Machine>
struct AmxTile {
  /// Numbers along the summed index that are packed at a time: sums come from memory and go there as often.
  static constexpr int depth = 512;
  /// The sums of a block are four of the eight registers.
  static constexpr int block = 2;
  static constexpr int panel_cols = block * tile_side;

  const ProductArguments& p;
  ProductTile tile;
  float *left, *right, *sums;
  std::int64_t sums_stride;

  static std::size_t scratch_bytes(int rows, int cols) {
    AmxTile x{{}, {0, 0, rows, cols}};
    return x.lay_out(nullptr);
  }

  std::size_t lay_out(void* memory) {
    Scratch scratch(memory);
    const int rows = tiles_of(tile.rows) * tile_side, cols = tiles_of(tile.cols) * tile_side;
    sums_stride = cols + 64 / static_cast<int>(sizeof(float));  // keeps rows out of each other's cache sets
    right = scratch.take<float>(cols * (depth / 2));
    left = scratch.take<float>(smaller(packed_rows, rows) * (depth / 2));
    sums = scratch.take<float>(rows * sums_stride);
    return scratch.bytes();
  }

  void sum_up() {
    if (p.inner == 0) clear(sums, tile.rows * sums_stride);
    add(p.left, p.right, p.inner, true);
    add_more();
  }

  /// Adds the terms of the second product to the sums.
  void add_more() { add(p.more.left, p.more.right, p.more.inner, false); }

 private:
  // The sums start with these terms, or they are there already.
  void add(const ProductFactor& rows_of, const ProductFactor& columns_of, std::int64_t all, bool starts) {
    if (all == 0) return;
    const TileScope<Machine> scope;
    for (std::int64_t inner = 0; inner < all; inner += depth) {
      const int count = static_cast<int>(smaller(depth, all - inner));
      pack_tiles<Side::right>(columns_of, tile.col, inner, tile.cols, count, right);
      for (int row = 0; row < tile.rows; row += packed_rows) {
        const int rows = static_cast<int>(smaller(packed_rows, tile.rows - row));
        pack_tiles<Side::left>(rows_of, tile.row + row, inner, rows, count, left);
        multiply(row, rows, tile_steps(count), starts && inner == 0);
      }
    }
  }

  void multiply(int row, int rows, int steps, bool first) const {
    const int row_tiles = tiles_of(rows), col_tiles = tiles_of(tile.cols);
    for (int j = 0; j < col_tiles; j += block)
      for (int i = 0; i < row_tiles; i += block)
        with_block<block>(row_tiles - i, [&]<int m>() {
          with_block<block>(col_tiles - j, [&]<int n>() {
            multiply_tiles<Machine, m, n>(steps, left + i * steps * tile_size, right + j * steps * tile_size,
                                          sums + (row + i * tile_side) * sums_stride + j * tile_side,
                                          sums_stride, first);
          });
        });
  }
};

/// The kernels on a machine of tiles; results are stored as bf16 or as float.
template <class Machine>
constexpr host::LinearKernels amx_kernels() {
  using Tile = AmxTile<Machine>;
  return {Tile::panel_cols, host::usual_panels, Tile::scratch_bytes, linear_tile<Bf16, Bf16, Tile>,
          linear_tile<Bf16, float, Tile>};
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
