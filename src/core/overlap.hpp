// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/tensor_ref.hpp"

/// \file
/// Whether two operands share memory.

namespace kformer::Impl {

/// Whether some element of `a` is surely in `b` too. Rows that lie between each other's, as slices of one
/// larger array do, share nothing. False where strides leave it open.
bool overlap(const TensorRef& a, const TensorRef& b);

/// Whether both have their elements in the same places, of the same size and in the same order.
bool same_elements(const TensorRef& a, const TensorRef& b);

}  // namespace kformer::Impl
