// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/row_access.hpp"
#include "ops/rms_norm/host/arguments.hpp"

/// \file
/// RMSNorm backward: rows are in the caches between their dot product and their gradient, and each block of
/// rows sums its part of the weight gradient.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::RmsNormBackwardArguments;

template <class T, bool fused, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void norm_gradient_row(const RmsNormBackwardArguments& p, std::int64_t row, C* partial) {
  const T *x = row_of<T>(p.x, row), *dy = row_of<T>(p.dy, row), *dsum = row_of<T>(p.dsum, row);
  const T* weight = static_cast<const T*>(p.weight);
  const RowWriter<T> dx(p.dx, row);
  const Vector<C> scale = splat(static_cast<const C*>(p.rstd)[row]);
  const C dot = sum_over<C>(p.hidden, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
    return part.load(dy + i) * part.load(weight + i) * (part.load(x + i) * scale);
  });
  const Vector<C> mean = splat(dot / static_cast<C>(p.hidden));
  for_each_vector<C>(p.hidden, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
    request_next_row(p.x, x + i);
    request_next_row(p.dy, dy + i);
    if constexpr (fused) request_next_row(p.dsum, dsum + i);
    const Vector<C> g = part.load(dy + i), xhat = part.load(x + i) * scale;
    // g · weight rounded as in the dot product, so that the two cancel where they must.
    const Vector<C> through = scale * fused_multiply_add<C>(-xhat, mean, g * part.load(weight + i));
    part.store(partial + i, part.load(partial + i) + g * xhat);
    if constexpr (fused)
      dx.store(i, part.load(dsum + i) + through, part);
    else
      dx.store(i, through, part);
  });
}

template <class T>
void rms_norm_backward(const RmsNormBackwardArguments& p, std::int64_t block) {
  using C = Arithmetic<T>;
  C* partial = static_cast<C*>(p.partial) + block * p.hidden;
  for (std::int64_t i = 0; i < p.hidden; ++i) partial[i] = 0;
  const std::int64_t first = block * p.rows_per_block, end = smaller(p.rows, first + p.rows_per_block);
  for (std::int64_t row = first; row < end; ++row)
    if (p.dsum.data)
      norm_gradient_row<T, true>(p, row, partial);
    else
      norm_gradient_row<T, false>(p, row, partial);
  end_streams();
}

/// dweight += Σ_blocks partial, in the order of the blocks.
template <class C>
void rms_norm_backward_weight(const RmsNormBackwardArguments& p, std::int64_t first_column, std::int64_t end) {
  const C* partial = static_cast<const C*>(p.partial) + first_column;
  C* dweight = static_cast<C*>(p.dweight) + first_column;
  for_each_vector<C>(end - first_column, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
    Vector<C> sum{};
    for (std::int64_t block = 0; block < p.blocks; ++block) sum += part.load(partial + block * p.hidden + i);
    part.store(dweight + i, part.load(dweight + i) + sum);
  });
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
