// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kformer {

/// One tensor of a checkpoint. Numbers are little-endian, rows are contiguous.
struct CheckpointTensor {
  /// Numbers (`F64`, `F32`, `F16`, `BF16`, and other safetensors types), or blocks of quantised
  /// weights: `Q8_0`, `Q4_0`, `Q4_1`, `TQ2_0`, `TQ1_0`, laid out as in `QuantizedFormat`.
  std::string type;
  std::vector<std::size_t> shape;  ///< of the weights, slowest extent first: (out, in); empty for a scalar
  std::span<const std::byte>
      bytes;  ///< valid as long as the checkpoint or a copy of it exists; need not be aligned
};

}  // namespace kformer
