// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/row_access.hpp"
#include "ops/rms_norm/host/arguments.hpp"

/// \file
/// RMSNorm backward: rows are in the caches between their dot product and their gradient, and each block of
/// rows sums its part of the weight gradient.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::RmsNormBackwardArguments;

/// The prefetch distance in elements.
struct NormGradientAhead {
  std::int64_t x, dy, dsum;
};

/// A row and its dot product over the columns, as the elements of its gradient need them. x is asked for in the
/// pass of the dot product, the rest in that of the gradient, so that memory is busy in both.
template <class T, bool fused, class C = Arithmetic<T>>
struct NormGradientRow {
  const T *x, *dy, *dsum;
  RowWriter<T> dx;
  Vector<C> scale, mean;

  KFORMER_SIMD_INLINE NormGradientRow(const RmsNormBackwardArguments& p, std::int64_t row,
                                      const NormGradientAhead& ahead)
      : x(row_of<T>(p.x, p.strides.token(row)) + p.strides.head(row) * p.strides.x),
        dy(row_of<T>(p.dy, p.strides.token(row)) + p.strides.head(row) * p.strides.dy),
        dsum(row_of<T>(p.dsum, row)),
        dx(p.dx, p.strides.token(row), p.strides.head(row) * p.strides.dx),
        scale(splat(static_cast<const C*>(p.rstd)[row])) {
    const T* weight = static_cast<const T*>(p.weight);
    const C dot = sum_over<C>(p.hidden, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
      __builtin_prefetch(x + i + ahead.x, 0, 2);
      return part.load(dy + i) * part.load(weight + i) * (part.load(x + i) * scale);
    });
    mean = splat(dot / static_cast<C>(p.hidden));
  }

  /// Writes the gradient from column `i` on and adds to that of the weight `w`.
  template <class Part>
  KFORMER_SIMD_INLINE void step(std::int64_t i, Part part, Vector<C> w, Vector<C>& dw,
                                const NormGradientAhead& ahead) const {
    __builtin_prefetch(dy + i + ahead.dy, 0, 2);
    if constexpr (fused) __builtin_prefetch(dsum + i + ahead.dsum, 0, 2);
    const Vector<C> g = part.load(dy + i), xhat = part.load(x + i) * scale;
    // g · weight rounded as in the dot product, so that the two cancel where they must.
    const Vector<C> through = scale * fused_multiply_add<C>(-xhat, mean, g * w);
    dw += g * xhat;
    if constexpr (fused)
      dx.store(i, part.load(dsum + i) + through, part);
    else
      dx.store(i, through, part);
  }
};

/// Neighbouring rows from `first` on. Their shares of the weight gradient are added row by row.
template <class T, bool fused, std::size_t... row>
KFORMER_SIMD_INLINE void norm_gradient_rows(const RmsNormBackwardArguments& p, std::int64_t first,
                                            const NormGradientAhead& ahead, Arithmetic<T>* partial,
                                            std::index_sequence<row...>) {
  using C = Arithmetic<T>;
  const NormGradientRow<T, fused> rows[] = {NormGradientRow<T, fused>(p, first + row, ahead)...};
  const T* weight = static_cast<const T*>(p.weight);
  for_each_vector<C>(p.hidden, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
    const Vector<C> w = part.load(weight + i);
    Vector<C> dw = part.load(partial + i);
    (rows[row].step(i, part, w, dw, ahead), ...);
    part.store(partial + i, dw);
  });
}

/// Several rows at a time where they are short: a dot product takes long, several take hardly longer.
template <class T, bool fused>
void norm_gradient_block(const RmsNormBackwardArguments& p, std::int64_t row, std::int64_t end,
                         Arithmetic<T>* partial) {
  constexpr std::int64_t together = 4, short_row = 512;
  const NormGradientAhead ahead{rows_ahead<T>(p.x), rows_ahead<T>(p.dy), rows_ahead<T>(p.dsum)};
  if (p.hidden <= short_row)
    for (; row + together <= end; row += together)
      norm_gradient_rows<T, fused>(p, row, ahead, partial, std::make_index_sequence<together>{});
  for (; row < end; ++row) norm_gradient_rows<T, fused>(p, row, ahead, partial, std::index_sequence<0>{});
}

template <class T>
void rms_norm_backward(const RmsNormBackwardArguments& p, std::int64_t block) {
  using C = Arithmetic<T>;
  C* partial = static_cast<C*>(p.partial) + block * p.hidden;
  for (std::int64_t i = 0; i < p.hidden; ++i) partial[i] = 0;
  const std::int64_t first = block * p.rows_per_block, end = smaller(p.rows, first + p.rows_per_block);
  if (p.dsum.data)
    norm_gradient_block<T, true>(p, first, end, partial);
  else
    norm_gradient_block<T, false>(p, first, end, partial);
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
