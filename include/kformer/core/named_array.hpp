// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kformer/core/tensor_ref.hpp"

namespace kformer {

/// Columns [begin, end) of a matrix that has `whole`; 0: all columns.
struct ColumnRange {
  std::int64_t begin = 0;  ///< the first
  std::int64_t end = 0;    ///< behind the last
  std::int64_t whole = 0;  ///< of the matrix
};

/// An array and what it is called in files.
struct NamedArray {
  std::string name;  ///< unique among the arrays that it is listed with
  TensorRef array;   ///< dense and row-major
  /// Of a part, which is a vector: the place of its first element in the array of that name.
  std::optional<std::int64_t> begin{};
  /// Of a part: it has these columns alone, row by row, and `begin` counts their elements.
  ColumnRange columns{};
};

}  // namespace kformer
