// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kformer/core/scalar.hpp"

namespace kformer::measure {

/// A host copy of a tensor.
struct HostArray {
  std::vector<std::size_t> shape;  ///< slowest extent first
  std::vector<double> values;      ///< row-major
};

/// Tensors by name: inputs from a file, or results.
using HostArrays = std::map<std::string, HostArray>;

}  // namespace kformer::measure
