// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "kformer/core/tensor_ref.hpp"

namespace kformer::Testing {

/// A dense operand; checks of types and extents need no memory.
inline TensorRef dense(const std::vector<std::int64_t>& extents, DType dtype = DType::f32,
                       void* data = nullptr) {
  TensorRef ref;
  ref.data = data;
  ref.dtype = dtype;
  ref.rank = static_cast<int>(extents.size());
  std::int64_t stride = 1;
  for (int r = ref.rank - 1; r >= 0; --r) {
    ref.extent[r] = extents[r];
    ref.stride[r] = stride;
    stride *= extents[r];
  }
  return ref;
}

}  // namespace kformer::Testing
