// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/launch.hpp"
#include "ops/quantized/rules.hpp"

/// \file
/// The portable conversions: one team per row of weights, and one thread per block that is quantised.

namespace kformer::Impl {

/// Rows of the matrix, those that `ids` names or all in order (null).
template <QuantizedFormat format, class T, class Exec>
void dequantize_rows_kokkos(const char* label, const Exec& exec, const QuantizedMatrix& matrix,
                            const std::int32_t* ids, const TensorRef& result) {
  using C = compute_t<T>;
  const auto y = result.as<T, 2>();
  const MatrixBlocks<format> blocks(matrix);
  const std::int64_t rows = matrix.rows, cols = matrix.cols;
  Kokkos::parallel_for(
      label, team_policy(exec, y.extent[0], cols), KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank(), id = ids ? ids[row] : row;
        const bool valid = id >= 0 && id < rows;
        T* to = y.data + row * y.stride[0];
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, cols), [&](std::int64_t i) {
          to[i] = T(valid ? blocks.template weight<C>(id, i) : Kokkos::Experimental::quiet_NaN_v<C>);
        });
      });
}

template <QuantizedFormat format, class T, class Exec>
void quantize_kokkos(const Exec& exec, const Quantize& p) {
  using Block = QuantizedBlock<format>;
  const auto x = p.x.as<const T, 2>();
  auto* data = reinterpret_cast<std::uint8_t*>(p.matrix.data);
  const std::int64_t cols = p.matrix.cols, blocks = ceil_div<std::int64_t>(cols, Block::weights);
  Kokkos::parallel_for(
      "kformer::quantize[kokkos]", Kokkos::RangePolicy<Exec>(exec, 0, p.matrix.rows * blocks),
      KOKKOS_LAMBDA(std::int64_t index) {
        const std::int64_t row = index / blocks, first = index % blocks * Block::weights;
        float values[Block::weights];
        for (int i = 0; i < Block::weights; ++i)
          values[i] = first + i < cols ? static_cast<float>(x(row, first + i)) : 0;
        quantize_block<format>(values, data + index * Block::bytes);
      });
}

}  // namespace kformer::Impl
