// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kformer/core/scalar.hpp"

namespace kformer::drivers {

/// A host copy of a tensor.
struct HostArray {
  std::vector<std::size_t> shape;  ///< slowest extent first
  std::vector<double> values;      ///< row-major
};

/// Tensors by name: inputs from a file, or results.
using HostArrays = std::map<std::string, HostArray>;

/// The storage type that a deck names.
inline DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (name == to_string(dtype)) return dtype;
  throw NotSupported("'" + name + "' is not a storage type; use f32, bf16, f16 or f64");
}

}  // namespace kformer::drivers
