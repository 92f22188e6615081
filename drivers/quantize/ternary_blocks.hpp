// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include "kformer/core/quantized_format.hpp"
#include "kformer/model/layer_weights.hpp"

namespace kformer::drivers {

/// Whether the weights are ternary already: no block of a ternary format would have two magnitudes besides 0.
template <class Exec>
bool has_ternary_blocks(const Exec& exec, const BlockMatrix<typename Exec::memory_space, double>& weights) {
  const std::int64_t length = weights_per_block(QuantizedFormat::tq2_0);
  const auto rows = static_cast<std::int64_t>(weights.extent(0));
  const auto cols = static_cast<std::int64_t>(weights.extent(1));
  const std::int64_t blocks = (cols + length - 1) / length;
  std::int64_t others = 0;
  Kokkos::parallel_reduce(
      "kformer-quantize::has_ternary_blocks",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, rows * blocks),
      KOKKOS_LAMBDA(std::int64_t index, std::int64_t& sum) {
        const std::int64_t row = index / blocks, begin = index % blocks * length;
        const std::int64_t end = begin + length < cols ? begin + length : cols;
        double magnitude = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          const double size = Kokkos::fabs(weights(row, i));
          if (magnitude == 0) magnitude = size;
          if (size != 0 && size != magnitude) ++sum;
        }
      },
      others);
  return others == 0;
}

}  // namespace kformer::drivers
