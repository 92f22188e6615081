// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kformer/core/stored_type.hpp"
#include "kformer/io/checkpoint.hpp"

namespace kformer::drivers {

/// A tensor of a model as a matrix.
struct MatrixExtents {
  std::int64_t rows, cols;
};

/// Vectors are one row.
MatrixExtents extents_of(const std::vector<std::size_t>& shape);

/// The conversion of a tensor.
struct TensorPlan {
  std::string name;
  std::optional<StoredType> format;  ///< none: kept as stored
};

/// The conversion of each tensor of the checkpoint's model. Tensors that the model does not have are left out;
/// those that already have their format are kept as stored.
/// \param layers    format of the layers' matrices; none: as stored
/// \param embedding format of the token embedding and the output matrix; none: as stored
std::vector<TensorPlan> plan_tensors(const Checkpoint& checkpoint, const std::optional<StoredType>& layers,
                                     const std::optional<StoredType>& embedding);

/// Type and bytes after the conversion.
StoredType type_after(const TensorLayout& tensor, const std::optional<StoredType>& format);
std::size_t bytes_after(const TensorLayout& tensor, const std::optional<StoredType>& format);

/// The bytes of a matrix of numbers or blocks.
std::size_t bytes_of(const StoredType& type, std::int64_t rows, std::int64_t cols);

}  // namespace kformer::drivers
