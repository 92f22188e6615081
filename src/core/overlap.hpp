// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/tensor_ref.hpp"

/// \file
/// Whether two operands share memory, or elements of one do.

namespace kformer::Impl {

/// Whether some element of `a` is surely in `b` too. Rows that lie between each other's, as slices of one
/// larger array do, share nothing. False where strides leave it open.
bool overlap(const TensorRef& a, const TensorRef& b);

/// Whether elements of `t` may lie in one place: an extent has a stride of 0, or one that is less than what the extents
/// of smaller strides span.
bool overlaps_itself(const TensorRef& t);

/// Whether both have their elements in the same places, of the same size and in the same order.
bool same_elements(const TensorRef& a, const TensorRef& b);

}  // namespace kformer::Impl
