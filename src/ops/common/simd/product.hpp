// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/pairs.hpp"

/// \file
/// Small matrix products in registers: `C(r, lane) [+]= Σ_k A(r, k)·B(k, lane)`. Elements of A are broadcast,
/// rows of B and C are vectors; nothing is packed. B may be of a storage type; A and B may both be pairs,
/// `depth` then counts pairs.

namespace kformer::Impl::simd::KFORMER_ISA {

/// The memory order of A: contiguous along the summed index, along the rows, or along the rows of one register
/// block.
enum class Left { by_row, by_column, by_block };

/// What C holds before: nothing, a sum, or a sum that is to be multiplied lane by lane first.
enum class Start { zero, sum, scaled_sum };

template <class C>
KFORMER_SIMD_INLINE Vector<C> left_factor(C element) {
  return splat(element);
}
template <class B>
KFORMER_SIMD_INLINE Vector<Arithmetic<B>> right_factor(const B* row) {
  return load_stored(row);
}
KFORMER_SIMD_INLINE void multiply_add(Vector<float>& sum, Vector<float> left, Vector<float> right) {
  sum = fused_multiply_add<float>(left, right, sum);
}
KFORMER_SIMD_INLINE void multiply_add(Vector<double>& sum, Vector<double> left, Vector<double> right) {
  sum = fused_multiply_add<double>(left, right, sum);
}
#if defined(__AVX512BF16__)
KFORMER_SIMD_INLINE __m512bh left_factor(Pair element) {
  return as_bits<__m512bh>(_mm512_set1_epi32(static_cast<int>(element.bits)));
}
KFORMER_SIMD_INLINE __m512bh right_factor(const Pair* row) {
  __m512bh x;
  std::memcpy(&x, row, sizeof(x));
  return x;
}
KFORMER_SIMD_INLINE void multiply_add(Vector<float>& sum, __m512bh left, __m512bh right) {
  sum = _mm512_dpbf16_ps(sum, left, right);
}
#endif

/// Stored numbers in a vector of operands.
template <class T>
inline constexpr int stored_width = width<Arithmetic<T>> * per_operand<T>;

/// Stored neighbours along the summed index as operands.
template <class T>
KFORMER_SIMD_INLINE auto load_operands(const T* from) {
  if constexpr (uses_pairs<T>)
    return right_factor(reinterpret_cast<const Pair*>(from));
  else
    return load_stored(from);
}
/// The first `count` of them, and zeros.
template <class T>
KFORMER_SIMD_INLINE auto load_operands(const T* from, std::int64_t count) {
  T part[stored_width<T>] = {};
  std::memcpy(part, from, count * sizeof(T));
  return load_operands(part);
}

/// The register block: rows of A, and vectors of B, that give enough independent sums and leave room for one
/// row of B.
inline constexpr int block_rows = vector_registers == 32 ? 8 : 4;
inline constexpr int block_vectors = 3;

/// One block of `rows` × `vectors`, summed by itself and then added, which rounds less than one long chain of
/// sums; `scale` has one number per lane. A(r, k) is `a[r·lda + k]` by row, `a[k·lda + r]` by column,
/// `a[k·block_rows + r]` by block; `r·lda` on from a block is the block that starts at row r.
template <Left left, Start start, int rows, int vectors, class A, class B, class C>
KFORMER_SIMD_INLINE void product_block(int depth, const A* __restrict a, std::int64_t lda,
                                       const B* __restrict b, std::int64_t ldb, C* __restrict c,
                                       std::int64_t ldc, const C* scale) {
  constexpr int W = width<C>;
  Vector<C> sum[rows][vectors];
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) sum[r][v] = Vector<C>{};
  }
  for (int k = 0; k < depth; ++k) {
    decltype(right_factor(b)) row[vectors];
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) row[v] = right_factor(b + v * W);
    KFORMER_SIMD_UNROLL
    for (int r = 0; r < rows; ++r) {
      const auto element = left_factor(left == Left::by_row ? a[r * lda] : a[r]);
      KFORMER_SIMD_UNROLL
      for (int v = 0; v < vectors; ++v) multiply_add(sum[r][v], element, row[v]);
    }
    a += left == Left::by_row ? 1 : left == Left::by_column ? lda : block_rows;
    b += ldb;
  }
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) {
      C* to = c + r * ldc + v * W;
      if (start == Start::sum) sum[r][v] += load(to);
      if (start == Start::scaled_sum) sum[r][v] += load(to) * load(scale + v * W);
      store(to, sum[r][v]);
    }
  }
}

/// The `rows` that a whole number of blocks leaves over, one template step at a time.
template <Left left, Start start, int rows, int vectors, class A, class B, class C>
KFORMER_SIMD_INLINE void product_rest(int count, int depth, const A* a, std::int64_t lda, const B* b,
                                      std::int64_t ldb, C* c, std::int64_t ldc, const C* scale) {
  if constexpr (rows > 0) {
    if (count == rows)
      product_block<left, start, rows, vectors>(depth, a, lda, b, ldb, c, ldc, scale);
    else
      product_rest<left, start, rows - 1, vectors>(count, depth, a, lda, b, ldb, c, ldc, scale);
  }
}

/// All `m` rows of a panel of `vectors` vectors.
template <Left left, Start start, int vectors, int rows = block_rows, class A, class B, class C>
__attribute__((noinline)) void product_panel(int m, int depth, const A* a, std::int64_t lda, const B* b,
                                             std::int64_t ldb, C* c, std::int64_t ldc,
                                             const C* scale = nullptr) {
  static_assert(left != Left::by_block || rows == block_rows);
  const std::int64_t step = left == Left::by_column ? 1 : lda;
  int r = 0;
  for (; r + rows <= m; r += rows)
    product_block<left, start, rows, vectors>(depth, a + r * step, lda, b, ldb, c + r * ldc, ldc, scale);
  product_rest<left, start, rows - 1, vectors>(m - r, depth, a + r * step, lda, b, ldb, c + r * ldc, ldc,
                                               scale);
}

/// All `m` rows and `n` columns, `n` a multiple of the width: wide panels, then narrower ones.
template <Left left, Start start, class A, class B, class C>
void product(int m, int n, int depth, const A* a, std::int64_t lda, const B* b, std::int64_t ldb, C* c,
             std::int64_t ldc) {
  constexpr int W = width<C>;
  // With many registers four vectors divide the usual head dimensions, with few two do.
  constexpr int wide = vector_registers == 32 ? 4 : 2, rows = 6;
  int j = 0;
  for (; j + wide * W <= n; j += wide * W)
    product_panel<left, start, wide, rows>(m, depth, a, lda, b + j, ldb, c + j, ldc);
  for (; j + 2 * W <= n; j += 2 * W)
    product_panel<left, start, 2, block_rows>(m, depth, a, lda, b + j, ldb, c + j, ldc);
  for (; j < n; j += W) product_panel<left, start, 1, block_rows>(m, depth, a, lda, b + j, ldb, c + j, ldc);
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
