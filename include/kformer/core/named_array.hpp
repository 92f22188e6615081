// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/tensor_ref.hpp"

namespace kformer {

/// An array and what it is called in files.
struct NamedArray {
  std::string name;  ///< unique among the arrays that it is listed with
  TensorRef array;   ///< dense and row-major
};

}  // namespace kformer
