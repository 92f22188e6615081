// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/matmul.hpp"
#include "ops/quantized/blocks.hpp"

/// \file
/// The portable gradient of inputs through quantised weights: the tiles of the portable matrix product, whose
/// right factor becomes numbers while it is copied into scratch.

namespace kformer::Impl {

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

template <QuantizedFormat format, class T, class Exec>
void quantized_linear_backward_input_kokkos(const Exec& exec, const QuantizedLinearBackwardInput& p) {
  using C = compute_t<T>;
  using Tile = MatmulTile<Exec, C>;
  static_assert(Tile::cols % 32 == 0);
  const auto dy = p.dy.as<const T, 2>();
  const auto dx = p.dx.as<T, 2>();
  const auto optional = [](const TensorRef& t) {
    return t.present() ? t.as<const T, 2>() : Strided<const T, 2>{};
  };
  const auto dxa = optional(p.adapter.left), a = optional(p.adapter.right), addend = optional(p.addend);
  const std::int64_t rank = p.adapter.rank();
  const MatrixBlocks<format> weight(p.weight);
  const C alpha = static_cast<C>(p.options.scale);
  const std::int64_t all_rows = dx.extent[0], in = dx.extent[1], out = dy.extent[1];
  const std::int64_t row_tiles = ceil_div<std::int64_t>(all_rows, Tile::rows);
  const std::int64_t league = row_tiles * ceil_div<std::int64_t>(in, Tile::cols);
  if (league == 0) return;
  const int level = Tile::bytes <= std::size_t(Kokkos::TeamPolicy<Exec>::scratch_size_max(0)) ? 0 : 1;
  auto policy = team_policy(exec, league, 256);
  policy.set_scratch_size(level, Kokkos::PerTeam(Tile::bytes));
  Kokkos::parallel_for(
      "kformer::quantized_linear_backward_input[kokkos]", policy, KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        using Block = RegisterBlock<Exec, C>;
        C* dy_tile = static_cast<C*>(team.team_scratch(level).get_shmem_aligned(Tile::bytes - 64, 64));
        C* weight_tile = dy_tile + Tile::left_size;
        C* sum = weight_tile + Tile::right_size;
        // Neighbouring teams share weights.
        const std::int64_t row0 = team.league_rank() % row_tiles * Tile::rows,
                           col0 = team.league_rank() / row_tiles * Tile::cols;
        const int rows = static_cast<int>(Kokkos::min<std::int64_t>(Tile::rows, all_rows - row0));
        const int cols = static_cast<int>(Kokkos::min<std::int64_t>(Tile::cols, in - col0));
        const int padded_rows = padded(rows, Block::rows), padded_cols = padded(cols, Block::cols);
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, padded_rows * Tile::result_stride),
                             [&](int i) { sum[i] = C(0); });
        // The terms of the matrix, then those of the adapter.
        for (const bool adapter : {false, true}) {
          const auto& left = adapter ? dxa : dy;
          const std::int64_t all = adapter ? rank : out;
          for (std::int64_t first = 0; first < all; first += Tile::depth) {
            const int depth = static_cast<int>(Kokkos::min<std::int64_t>(Tile::depth, all - first));
            team.team_barrier();
            load_tile<Exec>(team, left.data + row0 * left.stride[0] + first, left.stride[0], std::int64_t(1),
                            rows, padded_rows, depth, dy_tile, Tile::left_stride);
            if (adapter)
              load_tile<Exec>(team, a.data + first * a.stride[0] + col0, std::int64_t(1), a.stride[0], cols,
                              padded_cols, depth, weight_tile, Tile::right_stride);
            else
              load_weight_tile<format, Exec>(team, weight, first, col0, depth, cols, weight_tile,
                                             Tile::right_stride);
            team.team_barrier();
            tile_product<Exec, true>(team, padded_rows, padded_cols, depth, dy_tile, Tile::left_stride,
                                     weight_tile, Tile::right_stride, sum, Tile::result_stride);
          }
        }
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
          T* KOKKOS_RESTRICT to = dx.data + (row0 + i) * dx.stride[0] + col0;
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](int j) {
            const C value = alpha * sum[i * Tile::result_stride + j];
            to[j] = T(addend.data ? static_cast<C>(addend(row0 + i, col0 + j)) + value : value);
          });
        });
      });
}

}  // namespace kformer::Impl
