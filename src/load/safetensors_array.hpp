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

/// Names of storage types in safetensors files.
inline const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::i32:
      return "I32";
    case DType::u8:
      break;
  }
  return "U8";
}

}  // namespace kformer::Impl
