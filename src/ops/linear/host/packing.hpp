// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/product.hpp"
#include "ops/linear/host/arguments.hpp"

/// \file
/// Parts of factors as products take them: converted to operands, rows of the left factor along the summed
/// index, rows of the right factor along the columns. What lies in memory the other way is transposed on the
/// way, a square of vectors at a time.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::ProductFactor;

/// Stored neighbours along the summed index as bits that can be moved like numbers.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE Vector<C> load_along_sum(const T* from) {
  return as_bits<Vector<C>>(load_operands(from));
}

/// The same where only `count` are there, then zeros.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE Vector<C> load_along_sum(const T* from, int count) {
  return count < stored_width<T> ? as_bits<Vector<C>>(load_operands(from, count)) : load_along_sum(from);
}

/// Rows of operands along the summed index.
template <class C>
struct Rows {
  static constexpr bool by_index = true;
  C* data;
  std::int64_t ld;

  KFORMER_SIMD_INLINE C* at(int index, int operand) const { return data + index * ld + operand; }
};

/// Panels of `ld` indices, whose operands with the same summed index lie together.
template <class C>
struct Panels {
  static constexpr bool by_index = false;
  C* data;
  std::int64_t ld, panel_stride;

  KFORMER_SIMD_INLINE C* at(int index, int operand) const {
    return data + index / ld * panel_stride + operand * ld + index % ld;
  }
};

/// Stores a square of vectors, turned if they were loaded along the other order.
template <bool turned, class C>
KFORMER_SIMD_INLINE void store_square(Vector<C> (&x)[width<C>], int rows, C* to, std::int64_t ld) {
  if constexpr (turned) transpose<C>(x);
  if (rows == width<C>) {
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < width<C>; ++i) store(to + i * ld, x[i]);
  } else {
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < width<C>; ++i)
      if (i < rows) store(to + i * ld, x[i]);
  }
}

/// Packs `indices` × `count` numbers that lie along the summed index. Writes whole vectors; in panels, zeros
/// stand where there is no index.
template <class T, class To, class C = Arithmetic<T>>
void pack_along_sum(const T* from, std::int64_t line, int indices, int count, const To& to) {
  constexpr int W = width<C>, step = stored_width<T>;
  for (int i0 = 0; i0 < indices; i0 += W)
    for (int k = 0; k < count; k += step) {
      const int left = count - k < step ? count - k : step, rows = indices - i0 < W ? indices - i0 : W;
      const T* square = from + i0 * line + k;
      Vector<C> x[W];
      if (rows == W && left == step) {
        KFORMER_SIMD_UNROLL
        for (int i = 0; i < W; ++i) {
          x[i] = load_along_sum(square + i * line);
          __builtin_prefetch(square + (i + W) * line, 0, 2);
        }
      } else {
        KFORMER_SIMD_UNROLL
        for (int i = 0; i < W; ++i) x[i] = load_along_sum(square + i * line, i < rows ? left : 0);
      }
      store_square<!To::by_index>(x, To::by_index ? rows : operands<T>(left), to.at(i0, k / per_operand<T>),
                                  to.ld);
    }
}

/// Packs `indices` × `count` numbers that lie along the other index.
template <class T, class To, class C = Arithmetic<T>>
void pack_across_sum(const T* from, std::int64_t line, int indices, int count, const To& to) {
  constexpr int W = width<C>, step = stored_width<T>, pair = per_operand<T>;
  const int deep = operands<T>(count);
  for (int k0 = 0; k0 < deep; k0 += W)
    for (int i0 = 0; i0 < indices; i0 += step) {
      const int left = indices - i0 < step ? indices - i0 : step, rows = deep - k0 < W ? deep - k0 : W;
      const T* square = from + k0 * pair * line + i0;
      const bool whole = left == step && (k0 + W) * pair <= count;
      Vector<C> x[pair][W];
      KFORMER_SIMD_UNROLL
      for (int k = 0; k < W; ++k) {
        Vector<C> both[pair];
        KFORMER_SIMD_UNROLL
        for (int p = 0; p < pair; ++p) {
          const int number = k * pair + p;
          __builtin_prefetch(square + (number + W * pair) * line, 0, 2);
          both[p] = whole ? load_along_sum(square + number * line)
                          : load_along_sum(square + number * line, k0 * pair + number < count ? left : 0);
        }
        if constexpr (pair == 2) zip_bits(both);
        KFORMER_SIMD_UNROLL
        for (int p = 0; p < pair; ++p) x[p][k] = both[p];
      }
      for (int p = 0; p < pair && p * W < left; ++p) {
        const int own = left - p * W < W ? left - p * W : W;
        store_square<To::by_index>(x[p], To::by_index ? own : rows, to.at(i0 + p * W, k0), to.ld);
      }
    }
}

/// Packs the part of a factor that begins at (index, inner).
template <class T, class To>
void pack(const ProductFactor& f, std::int64_t index, std::int64_t inner, int indices, int count,
          const To& to) {
  const T* from = static_cast<const T*>(f.data) + index * f.index_stride + inner * f.inner_stride;
  if (f.inner_stride == 1)
    pack_along_sum(from, f.index_stride, indices, count, to);
  else
    pack_across_sum(from, f.inner_stride, indices, count, to);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
