// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kformer/core/scalar.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "kformer/ops/impl/tile.hpp"

/// \file
/// The portable matrix product, for all batches and heads of a problem in one launch: one team per tile of the
/// result, operands converted to the type of arithmetic while they are copied into scratch.
///
/// A result element is summed by one team in the order of the summed index, so it does not depend on the number
/// of threads.

namespace kformer::Impl {

/// The left or right factor of a product. Its element with result index `i` (a row of the left, a column of the
/// right factor) and summed index `(outer, inner)`, for one batch and head, is
/// `data[i·index_stride + outer·outer_stride + inner·inner_stride + batch·batch_stride +
/// head/head_divisor·head_stride]`.
template <class T>
struct Factor {
  const T* data;
  std::int64_t index_stride;
  std::int64_t inner_stride;
  std::int64_t outer_stride = 0;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t head_divisor = 1;
};

/// `result(row, col) = alpha · (Σ_(outer,inner) left(row, outer, inner) · right(col, outer, inner) + Σ_inner
/// more_left(row, inner) · more_right(col, inner)) + addend(row, col)`. Columns of the result and of the addend
/// have unit stride.
template <class T, class O>
struct MatrixProduct {
  std::int64_t batches = 1, heads = 1, rows, cols, outer = 1, inner;
  Factor<T> left, right;
  O* result;
  std::int64_t row_stride, batch_stride = 0, head_stride = 0;
  const O* addend = nullptr;           ///< null for none; may be `result`; the same for all heads
  std::int64_t addend_row_stride = 0;  ///< 0 adds the same row everywhere
  std::int64_t addend_batch_stride = 0;
  compute_t<T> alpha = 1;
  bool batch_invariant = false;  ///< rows are summed alike, however many there are
  std::int64_t more_inner = 0;   ///< terms of a second product; the same factors for all batches and heads
  Factor<T> more_left{}, more_right{};
};

/// The effect of a zero in the left factor on an infinite or NaN element of the right one.
enum class Zeros {
  multiply,   ///< IEEE: the product is NaN
  annihilate  ///< the product is 0: a probability of 0 hides the key, whatever it contains
};

/// The tile of the result that one team computes, and how much of the sum it takes at a time. A device has at
/// least 40 KiB of scratch for the three tiles, the host level-1 and level-2 caches.
template <class Exec, class C>
struct MatmulTile {
  static constexpr int rows = 64;
  static constexpr int cols = is_host_space<Exec> ? 128 : 256 / static_cast<int>(sizeof(C));
  static constexpr int depth = 128 / (is_host_space<Exec> ? 1 : static_cast<int>(sizeof(C)));
  // Rows of tiles are not a power of two apart, so that they do not fall into the same cache sets or banks.
  static constexpr int left_stride = rows + 4, right_stride = cols + 4;
  static constexpr int left_size = depth * left_stride, right_size = depth * right_stride;
  static constexpr int result_stride = cols, result_size = rows * result_stride;
  static constexpr std::size_t bytes = (left_size + right_size + result_size) * sizeof(C) + 64;
};

/// `tile[k·stride + i] = from[i·index_stride + k·k_stride]` for `i < count` and 0 for `count ≤ i < padded`.
template <class Exec, class C, class T>
KOKKOS_FUNCTION void load_tile(const TeamMember<Exec>& team, const T* KOKKOS_RESTRICT from,
                               std::int64_t index_stride, std::int64_t k_stride, int count, int padded,
                               int depth, C* KOKKOS_RESTRICT tile, int stride) {
  if (index_stride == 1) {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, depth), [&](int k) {
      const T* KOKKOS_RESTRICT source = from + k * k_stride;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, count),
                           [&](int i) { tile[k * stride + i] = static_cast<C>(source[i]); });
      for (int i = count; i < padded; ++i) tile[k * stride + i] = C(0);
    });
    return;
  }
  // Several rows at a time: consecutive k are read along each row, and written next to each other.
  constexpr int block = 8;
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, ceil_div(padded, block)), [&](int b) {
    const int i0 = b * block;
    const T* KOKKOS_RESTRICT source = from + i0 * index_stride;
    C* KOKKOS_RESTRICT target = tile + i0;
    if (i0 + block <= count) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, depth), [&](int k) {
        KFORMER_UNROLL
        for (int i = 0; i < block; ++i)
          target[k * stride + i] = static_cast<C>(source[i * index_stride + k * k_stride]);
      });
    } else {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, depth), [&](int k) {
        for (int i = 0; i < Kokkos::min(block, padded - i0); ++i)
          target[k * stride + i] =
              i0 + i < count ? static_cast<C>(source[i * index_stride + k * k_stride]) : C(0);
      });
    }
  });
}

/// Whether `tile[k·stride + i]` is finite for all `k < depth` and `i < count`; the same answer on every thread.
template <class Exec, class C>
KOKKOS_FUNCTION bool all_finite(const TeamMember<Exec>& team, const C* tile, int count, int depth, int stride) {
  int bad = 0;
  Kokkos::parallel_reduce(
      Kokkos::TeamVectorRange(team, depth),
      [&](int k, int& sum) {
        const C* row = tile + k * stride;
        for (int i = 0; i < count; ++i) sum += row[i] - row[i] == C(0) ? 0 : 1;
      },
      bad);
  return bad == 0;
}

/// tile_product where a zero of `a` annihilates: slow, for tiles that hold infinities or NaN.
template <class Exec, class C>
KOKKOS_FUNCTION void annihilating_tile_product(const TeamMember<Exec>& team, int m, int n, int k, const C* a,
                                               int lda, const C* b, int ldb, C* c, int ldc) {
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, m * n), [&](int element) {
    const int i = element / n, j = element % n;
    C sum = c[i * ldc + j];
    for (int kk = 0; kk < k; ++kk)
      if (a[kk * lda + i] != C(0)) sum += a[kk * lda + i] * b[kk * ldb + j];
    c[i * ldc + j] = sum;
  });
}

/// Launches the product under `label`.
template <Zeros zeros = Zeros::multiply, class T, class O, class Exec>
void matmul(const std::string& label, const Exec& exec, const MatrixProduct<T, O>& p) {
  using C = compute_t<T>;
  using Tile = MatmulTile<Exec, C>;
  static_assert(std::is_same_v<C, compute_t<O>>);
  const std::int64_t row_tiles = ceil_div<std::int64_t>(p.rows, Tile::rows);
  const std::int64_t tiles = row_tiles * ceil_div<std::int64_t>(p.cols, Tile::cols);
  const std::int64_t league = p.batches * p.heads * tiles;
  if (league == 0) return;
  const int level = Tile::bytes <= std::size_t(Kokkos::TeamPolicy<Exec>::scratch_size_max(0)) ? 0 : 1;
  auto policy = team_policy(exec, league, 256);
  policy.set_scratch_size(level, Kokkos::PerTeam(Tile::bytes));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        using Block = RegisterBlock<Exec, C>;
        C* left_tile = static_cast<C*>(team.team_scratch(level).get_shmem_aligned(Tile::bytes - 64, 64));
        C* right_tile = left_tile + Tile::left_size;
        C* sum = right_tile + Tile::right_size;
        const std::int64_t batch_head = team.league_rank() / tiles, tile = team.league_rank() % tiles;
        const std::int64_t batch = batch_head / p.heads, head = batch_head % p.heads;
        // Neighbouring teams share columns: the right factor is the larger one where it matters, the weight.
        const std::int64_t row0 = tile % row_tiles * Tile::rows, col0 = tile / row_tiles * Tile::cols;
        const int rows = static_cast<int>(Kokkos::min<std::int64_t>(Tile::rows, p.rows - row0));
        const int cols = static_cast<int>(Kokkos::min<std::int64_t>(Tile::cols, p.cols - col0));
        const int padded_rows = padded(rows, Block::rows), padded_cols = padded(cols, Block::cols);
        const T* left = p.left.data + batch * p.left.batch_stride +
                        head / p.left.head_divisor * p.left.head_stride + row0 * p.left.index_stride;
        const T* right = p.right.data + batch * p.right.batch_stride +
                         head / p.right.head_divisor * p.right.head_stride + col0 * p.right.index_stride;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, padded_rows * Tile::result_stride),
                             [&](int i) { sum[i] = C(0); });
        for (std::int64_t outer = 0; outer <= p.outer; ++outer) {
          const bool more = outer == p.outer;  // the second product comes last
          const Factor<T>&l = more ? p.more_left : p.left, &r = more ? p.more_right : p.right;
          const T* from_left = more ? l.data + row0 * l.index_stride : left + outer * l.outer_stride;
          const T* from_right = more ? r.data + col0 * r.index_stride : right + outer * r.outer_stride;
          const std::int64_t all = more ? p.more_inner : p.inner;
          for (std::int64_t inner = 0; inner < all; inner += Tile::depth) {
            const int depth = static_cast<int>(Kokkos::min<std::int64_t>(Tile::depth, all - inner));
            team.team_barrier();
            load_tile<Exec>(team, from_left + inner * l.inner_stride, l.index_stride, l.inner_stride, rows,
                            padded_rows, depth, left_tile, Tile::left_stride);
            load_tile<Exec>(team, from_right + inner * r.inner_stride, r.index_stride, r.inner_stride, cols,
                            padded_cols, depth, right_tile, Tile::right_stride);
            team.team_barrier();
            if (zeros == Zeros::annihilate &&
                !all_finite<Exec>(team, right_tile, cols, depth, Tile::right_stride))
              annihilating_tile_product<Exec>(team, padded_rows, padded_cols, depth, left_tile,
                                              Tile::left_stride, right_tile, Tile::right_stride, sum,
                                              Tile::result_stride);
            else
              tile_product<Exec, true>(team, padded_rows, padded_cols, depth, left_tile, Tile::left_stride,
                                       right_tile, Tile::right_stride, sum, Tile::result_stride);
          }
        }
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
          O* KOKKOS_RESTRICT to =
              p.result + batch * p.batch_stride + head * p.head_stride + (row0 + i) * p.row_stride + col0;
          const O* more =
              p.addend ? p.addend + batch * p.addend_batch_stride + (row0 + i) * p.addend_row_stride + col0
                       : nullptr;
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int j) {
            const C value = p.alpha * sum[i * Tile::result_stride + j];
            to[j] = O(more ? value + static_cast<C>(more[j]) : value);
          });
        });
      });
}

}  // namespace kformer::Impl
