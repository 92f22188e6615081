// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/dtype.hpp"

namespace kformer::Impl {

/// What torch calls a type, as the key `torch_dtype` of a config.json.
constexpr const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      return "float32";
  }
}

}  // namespace kformer::Impl
