// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kformer {

/// One tensor of a checkpoint. Numbers are little-endian, rows lie back to back.
struct CheckpointTensor {
  /// Numbers (`F64`, `F32`, `F16`, `BF16`, and what else safetensors files have), or blocks of quantised
  /// weights: `Q8_0`, `Q4_0`, `Q4_1`, `TQ2_0`, `TQ1_0`, laid out as `QuantizedFormat` says.
  std::string type;
  std::vector<std::size_t> shape;    ///< of the weights, slowest extent first: (out, in); empty for a scalar
  std::span<const std::byte> bytes;  ///< as long as the checkpoint or a copy of it lives; need not be aligned
};

}  // namespace kformer
