// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "ops/quantized/reference.hpp"

/// \file
/// Quantisation by the mean magnitude in textbook order.

namespace kformer::Impl::reference {

/// The codes and the scale of a weight, as blocks.
inline void ternary_quantize(const HostTensor<double>& weight, const QuantizedOutput& matrix) {
  double sum = 0;
  for (const double w : weight.values()) sum += std::abs(w);
  const auto mean =
      static_cast<float>(weight.values().empty() ? 0 : sum / static_cast<double>(weight.values().size()));
  const float by_mean = std::isfinite(1 / mean) ? 1 / mean : 0;
  const auto store = [&](auto format) {
    using Block = QuantizedBlock<format()>;
    auto* block = reinterpret_cast<std::uint8_t*>(matrix.data);
    for (std::int64_t row = 0; row < matrix.rows; ++row)
      for (std::int64_t first = 0; first < matrix.cols; first += Block::weights, block += Block::bytes) {
        int codes[Block::weights] = {};
        for (int i = 0; i < Block::weights && first + i < matrix.cols; ++i) {
          const float scaled = static_cast<float>(weight(row, first + i)) * by_mean;
          codes[i] = scaled >= 0.5f ? 1 : scaled <= -0.5f ? -1 : 0;
        }
        Block::store(block, codes, isfinite(mean) ? mean : std::nanf(""), 0);
      }
  };
  if (matrix.format == QuantizedFormat::tq2_0)
    store(std::integral_constant<QuantizedFormat, QuantizedFormat::tq2_0>{});
  else
    store(std::integral_constant<QuantizedFormat, QuantizedFormat::tq1_0>{});
}

}  // namespace kformer::Impl::reference
