// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/ops/impl/matmul.hpp"
#include "ops/quantized/blocks.hpp"

/// \file
/// Portable products with quantised weights for many rows: the tiles of the portable matrix product, whose right
/// factor becomes numbers while it is copied into scratch.

namespace kformer::Impl {

/// Which of its extents the weight is summed along.
enum class SummedAlong { columns, rows };

/// `tile[k·stride + i]` = weight `(row + k, col + i)` for `i < cols`, and 0 behind them in whole units of 32;
/// `col` is a multiple of 32.
template <QuantizedFormat format, class Exec, class C>
KOKKOS_FUNCTION void load_weight_tile(const TeamMember<Exec>& team, const MatrixBlocks<format>& blocks,
                                      std::int64_t row, std::int64_t col, int depth, int cols,
                                      C* KOKKOS_RESTRICT tile, int stride) {
  constexpr int unit = 32, block_weights = QuantizedBlock<format>::weights;
  const int units = ceil_div(cols, unit);
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, depth * units), [&](int job) {
    const int k = job / units, first = job % units * unit;
    const auto weights = blocks.template weights<C>(row + k, (col + first) / block_weights);
    const int place = static_cast<int>((col + first) % block_weights);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, unit), [&](int i) {
      tile[k * stride + first + i] = first + i < cols ? weights(place + i) : C(0);
    });
  });
}

/// `tile[k·stride + i]` = weight `(row + i, col + k)` for `i < rows`, and 0 for `rows ≤ i < padded`; `unit` divides
/// `col` and 32.
template <int unit, QuantizedFormat format, class Exec, class C>
KOKKOS_FUNCTION void load_turned_tile(const TeamMember<Exec>& team, const MatrixBlocks<format>& blocks,
                                      std::int64_t row, std::int64_t col, int depth, int rows, int padded,
                                      C* KOKKOS_RESTRICT tile, int stride) {
  constexpr int block_weights = QuantizedBlock<format>::weights;
  const int units = ceil_div(depth, unit);
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, padded * units), [&](int job) {
    const int i = job / units, first = job % units * unit;
    const int count = Kokkos::min(unit, depth - first);
    if (i >= rows) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, count),
                           [&](int k) { tile[(first + k) * stride + i] = C(0); });
      return;
    }
    const auto weights = blocks.template weights<C>(row + i, (col + first) / block_weights);
    const auto begin = static_cast<int>((col + first) % block_weights);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, count),
                         [&](int k) { tile[(first + k) * stride + i] = weights(begin + k); });
  });
}

/// The operands of a product: result = alpha · (left · weight + more_left · more_right) + addend.
template <class T>
struct QuantizedProduct {
  Strided<const T, 2> left;
  QuantizedMatrix weight;
  Strided<T, 2> result;
  compute_t<T> alpha;
  Strided<const T, 2> more_left, more_right;          ///< terms of an adapter
  std::int64_t rank;                                  ///< how many; 0 for none
  std::int64_t more_index_stride, more_inner_stride;  ///< of `more_right`
  Strided<const T, 2> addend;                         ///< without data if there is none
};

/// An absent operand has no data.
template <class T>
Strided<const T, 2> optional_matrix(const TensorRef& t) {
  return t.present() ? t.as<const T, 2>() : Strided<const T, 2>{};
}

template <QuantizedFormat format, SummedAlong along, class T, class Exec>
void quantized_product_kokkos(const std::string& label, const Exec& exec, const QuantizedProduct<T>& p) {
  using C = compute_t<T>;
  using Tile = MatmulTile<Exec, C>;
  constexpr int unit = Tile::depth < 32 ? Tile::depth : 32;
  static_assert(Tile::cols % 32 == 0 && Tile::depth % unit == 0 && 32 % unit == 0);
  const MatrixBlocks<format> weight(p.weight);
  const auto left = p.left, more_left = p.more_left, more_right = p.more_right, addend = p.addend;
  const auto result = p.result;
  const std::int64_t rank = p.rank, more_index = p.more_index_stride, more_inner = p.more_inner_stride;
  const C alpha = p.alpha;
  const std::int64_t all_rows = result.extent[0], all_cols = result.extent[1], all_inner = left.extent[1];
  const std::int64_t row_tiles = ceil_div<std::int64_t>(all_rows, Tile::rows);
  const std::int64_t league = row_tiles * ceil_div<std::int64_t>(all_cols, Tile::cols);
  if (league == 0) return;
  const int level = Tile::bytes <= std::size_t(Kokkos::TeamPolicy<Exec>::scratch_size_max(0)) ? 0 : 1;
  auto policy = team_policy(exec, league, 256);
  policy.set_scratch_size(level, Kokkos::PerTeam(Tile::bytes));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        using Block = RegisterBlock<Exec, C>;
        C* left_tile = static_cast<C*>(team.team_scratch(level).get_shmem_aligned(Tile::bytes - 64, 64));
        C* weight_tile = left_tile + Tile::left_size;
        C* sum = weight_tile + Tile::right_size;
        // Neighbouring teams share weights.
        const std::int64_t row0 = team.league_rank() % row_tiles * Tile::rows,
                           col0 = team.league_rank() / row_tiles * Tile::cols;
        const int rows = static_cast<int>(Kokkos::min<std::int64_t>(Tile::rows, all_rows - row0));
        const int cols = static_cast<int>(Kokkos::min<std::int64_t>(Tile::cols, all_cols - col0));
        const int padded_rows = padded(rows, Block::rows), padded_cols = padded(cols, Block::cols);
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, padded_rows * Tile::result_stride),
                             [&](int i) { sum[i] = C(0); });
        // The terms of the matrix, then those of the adapter.
        for (int part = 0; part < 2; ++part) {
          const bool adapter = part == 1;
          const Strided<const T, 2> from = adapter ? more_left : left;
          const std::int64_t all = adapter ? rank : all_inner;
          for (std::int64_t first = 0; first < all; first += Tile::depth) {
            const int depth = static_cast<int>(Kokkos::min<std::int64_t>(Tile::depth, all - first));
            team.team_barrier();
            load_tile<Exec>(team, from.data + row0 * from.stride[0] + first, from.stride[0], std::int64_t(1),
                            rows, padded_rows, depth, left_tile, Tile::left_stride);
            if (adapter)
              load_tile<Exec>(team, more_right.data + first * more_inner + col0 * more_index, more_index,
                              more_inner, cols, padded_cols, depth, weight_tile, Tile::right_stride);
            else if (along == SummedAlong::rows)
              load_weight_tile<format, Exec>(team, weight, first, col0, depth, cols, weight_tile,
                                             Tile::right_stride);
            else
              load_turned_tile<unit, format, Exec>(team, weight, col0, first, depth, cols, padded_cols,
                                                   weight_tile, Tile::right_stride);
            team.team_barrier();
            tile_product<Exec, true>(team, padded_rows, padded_cols, depth, left_tile, Tile::left_stride,
                                     weight_tile, Tile::right_stride, sum, Tile::result_stride);
          }
        }
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
          T* KOKKOS_RESTRICT to = result.data + (row0 + i) * result.stride[0] + col0;
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int j) {
            const C value = alpha * sum[i * Tile::result_stride + j];
            to[j] = T(addend.data ? static_cast<C>(addend(row0 + i, col0 + j)) + value : value);
          });
        });
      });
}

template <QuantizedFormat format, class T, class Exec>
void quantized_linear_tiles_kokkos(const Exec& exec, const QuantizedLinearForward& p) {
  const auto b = optional_matrix<T>(p.adapter.right);
  quantized_product_kokkos<format, SummedAlong::columns, T>(
      "kformer::quantized_linear_forward[kokkos]", exec,
      {p.x.as<const T, 2>(), p.weight, p.y.as<T, 2>(), static_cast<compute_t<T>>(p.options.scale),
       optional_matrix<T>(p.adapter.left), b, p.adapter.rank(), b.stride[0], 1,
       optional_matrix<T>(p.residual)});
}

template <QuantizedFormat format, class T, class Exec>
void quantized_linear_backward_input_kokkos(const Exec& exec, const QuantizedLinearBackwardInput& p) {
  const auto a = optional_matrix<T>(p.adapter.right);
  quantized_product_kokkos<format, SummedAlong::rows, T>(
      "kformer::quantized_linear_backward_input[kokkos]", exec,
      {p.dy.as<const T, 2>(), p.weight, p.dx.as<T, 2>(), static_cast<compute_t<T>>(p.options.scale),
       optional_matrix<T>(p.adapter.left), a, p.adapter.rank(), 1, a.stride[0], optional_matrix<T>(p.addend)});
}

}  // namespace kformer::Impl
