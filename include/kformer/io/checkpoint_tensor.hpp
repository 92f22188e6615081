// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kformer/core/stored_type.hpp"

namespace kformer {

/// One tensor of a checkpoint. Numbers are little-endian, rows are contiguous.
struct CheckpointTensor {
  StoredType type;                 ///< single numbers, or blocks laid out as in `QuantizedFormat`
  std::vector<std::size_t> shape;  ///< of the weights, slowest extent first: (out, in); empty for a scalar
  std::span<const std::byte>
      bytes;  ///< valid as long as the checkpoint or a copy of it exists; need not be aligned
};

/// What a tensor of a checkpoint is, without its bytes.
struct TensorLayout {
  StoredType type;                 ///< as `CheckpointTensor` has it
  std::vector<std::size_t> shape;  ///< of the weights, slowest extent first
  std::size_t bytes;               ///< how many there are
};

}  // namespace kformer
