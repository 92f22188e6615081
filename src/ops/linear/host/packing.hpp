// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/product.hpp"
#include "ops/linear/host/arguments.hpp"

/// \file
/// Parts of factors as products take them: converted to operands, in rows along the summed index or in panels
/// of indices. Data that are contiguous along the summed index are transposed while they are packed into
/// panels, a square of vectors at a time.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::ProductFactor;

/// Stored neighbours along the summed index as bits that can be moved like numbers.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE Vector<C> load_along_sum(const T* from) {
  return as_bits<Vector<C>>(load_operands(from));
}

/// The same with only `count` elements, then zeros.
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

/// Panels of `ld` indices, whose operands with the same summed index are contiguous.
template <class C, int indices>
struct Panels {
  static constexpr bool by_index = false;
  static constexpr std::int64_t ld = indices;
  C* data;
  std::int64_t panel_stride;

  KFORMER_SIMD_INLINE C* at(int index, int operand) const {
    return data + index / indices * panel_stride + operand * indices + index % indices;
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

/// Packs `indices` × `count` numbers that are contiguous along the summed index. Writes whole vectors; in
/// panels, zeros fill missing indices.
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

/// Stores a vector of indices, which may be those of several panels.
template <class C, int indices>
KFORMER_SIMD_INLINE void store_indices(const Panels<C, indices>& to, int index, int operand, Vector<C> x) {
  constexpr int part = indices < width<C> ? indices : width<C>;
  C lanes[width<C>];
  store(lanes, x);
  KFORMER_SIMD_UNROLL
  for (int i = 0; i < width<C>; i += part) std::memcpy(to.at(index + i, operand), lanes + i, part * sizeof(C));
}

/// Packs `indices` × `count` numbers that are contiguous along the other index, a line of the factor at a time.
template <class T, class To, class C = Arithmetic<T>>
void pack_across_sum(const T* from, std::int64_t line, int indices, int count, const To& to) {
  constexpr int W = width<C>, step = stored_width<T>, pair = per_operand<T>, ahead = 4;
  for (int k = 0; k < count; k += pair)
    for (int i0 = 0; i0 < indices; i0 += step) {
      const int left = indices - i0 < step ? indices - i0 : step;
      Vector<C> x[pair];
      KFORMER_SIMD_UNROLL
      for (int p = 0; p < pair; ++p) {
        const T* here = from + (k + p) * line + i0;
        __builtin_prefetch(here + ahead * pair * line, 0, 2);
        x[p] = load_along_sum(here, k + p < count ? left : 0);
      }
      if constexpr (pair == 2) zip_bits(x);
      KFORMER_SIMD_UNROLL
      for (int p = 0; p < pair; ++p)
        if (p * W < left) store_indices(to, i0 + p * W, k / pair, x[p]);
    }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
