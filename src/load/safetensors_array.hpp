// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kformer/core/tensor_ref.hpp"

/// \file
/// How arrays are described in safetensors files.

namespace kformer::Impl {

inline std::vector<std::size_t> shape_of(const TensorRef& ref) {
  return {ref.extent.begin(), ref.extent.begin() + ref.rank};
}

}  // namespace kformer::Impl
