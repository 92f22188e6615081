// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/tensor_ref.hpp"
#include "run.hpp"

/// \file
/// What the unfused forms of the blocks do between calls of the library: one pass over memory each, of matrices
/// (rows, columns) of one storage type. On a host they are written like the kernels of the blocks: by the vectors
/// of this processor, with prefetching, and with non-temporal stores where the arrays exceed the caches. On a device
/// each thread has a column, neighbours side by side.

namespace kformer::perf {

/// `result = a + b`; `result` may be `a`.
void add(const Space& exec, const TensorRef& a, const TensorRef& b, const TensorRef& result);

/// `result = a · b`, element by element.
void multiply(const Space& exec, const TensorRef& a, const TensorRef& b, const TensorRef& result);

/// `result = rotate_half(x)` on its columns, which are heads of `2 · half`: the negative second half of each, then
/// the first one. \param x may have more columns
void rotate_half(const Space& exec, const TensorRef& x, std::int64_t half, const TensorRef& result);

/// `result = x · cos + rotated · sin`. \param x may have more columns
/// \param cos,sin in the type of arithmetic, (positions, half), where the rows of `x` are positions of sequences
void apply_rotation(const Space& exec, const TensorRef& x, const TensorRef& rotated, const TensorRef& cos,
                    const TensorRef& sin, const TensorRef& result);

}  // namespace kformer::perf
