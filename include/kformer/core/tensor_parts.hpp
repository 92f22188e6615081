// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "kformer/core/tensor_ref.hpp"

/// \file
/// Parts of arrays.

namespace kformer::Impl {

/// Rows [first, first + count) of a matrix, or elements of a vector.
inline TensorRef rows_of(TensorRef ref, std::int64_t first, std::int64_t count) {
  if (ref.data)
    ref.data = static_cast<std::byte*>(ref.data) +
               first * ref.stride[0] * static_cast<std::int64_t>(size_of(ref.dtype));
  ref.extent[0] = count;
  return ref;
}

/// Columns [first, first + count) of a matrix, or elements of a vector.
inline TensorRef columns_of(TensorRef ref, std::int64_t first, std::int64_t count) {
  if (ref.data)
    ref.data = static_cast<std::byte*>(ref.data) + first * static_cast<std::int64_t>(size_of(ref.dtype));
  ref.extent[static_cast<std::size_t>(ref.rank - 1)] = count;
  return ref;
}

}  // namespace kformer::Impl
