// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kformer/core/tensor_ref.hpp"

namespace kformer {

/// An array and what it is called in files.
struct NamedArray {
  std::string name;  ///< unique among the arrays that it is listed with
  TensorRef array;   ///< dense and row-major
  /// Of a part, which is a vector: the place of its first element in the array of that name.
  std::optional<std::int64_t> begin{};
};

}  // namespace kformer
