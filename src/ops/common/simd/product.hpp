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

/// What C holds before: nothing, a sum, a sum that is to be multiplied lane by lane first, or one to which an addend
/// comes last.
enum class Start { zero, sum, scaled_sum, sum_and_addend };

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

/// What C is before, where it is stored (at the same place, unless said otherwise), and the addend, if any.
template <class C>
struct Sums {
  Sums(C* c, std::int64_t ldc) : before(c), after(c), ld_before(ldc), ld_after(ldc) {}
  Sums(const C* from, std::int64_t ld_from, C* to, std::int64_t ld_to, const C* more = nullptr,
       std::int64_t ld_more = 0)
      : before(from), after(to), addend(more), ld_before(ld_from), ld_after(ld_to), ld_addend(ld_more) {}
  Sums from(int r, int col) const {
    return {before + r * ld_before + col,
            ld_before,
            after + r * ld_after + col,
            ld_after,
            addend ? addend + r * ld_addend + col : nullptr,
            ld_addend};
  }

  const C* before;
  C* after;
  const C* addend = nullptr;
  std::int64_t ld_before, ld_after, ld_addend = 0;
};

/// Where A and C lie: in the first cache, or beyond it, so that prefetching them pays.
enum class Reach { near, far };

/// Prefetches row `r` of a block of C.
template <Start start, int vectors, class C>
KFORMER_SIMD_INLINE void prefetch_sums(const Sums<C>& c, int r) {
  KFORMER_SIMD_UNROLL
  for (int v = 0; v < vectors; ++v) {
    if (start != Start::zero) __builtin_prefetch(c.before + r * c.ld_before + v * width<C>, 0, 3);
    if (c.after != c.before) __builtin_prefetch(c.after + r * c.ld_after + v * width<C>, 0, 2);
    if (start == Start::sum_and_addend) __builtin_prefetch(c.addend + r * c.ld_addend + v * width<C>, 0, 2);
  }
}

/// One block of `rows` × `vectors`, summed by itself and then added, which rounds less than one long chain of
/// sums; `scale` has one number per lane. A(r, k) is `a[r·lda + k]` by row, `a[k·lda + r]` by column,
/// `a[k·block_rows + r]` by block; `r·lda` on from a block is the block that starts at row r.
template <Left left, Start start, Reach at, int rows, int vectors, class A, class B, class C>
KFORMER_SIMD_INLINE void product_block(int depth, const A* __restrict a, std::int64_t lda,
                                       const B* __restrict b, std::int64_t ldb, const Sums<C>& c,
                                       const C* scale) {
  constexpr int W = width<C>;
  Vector<C> sum[rows][vectors];
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) sum[r][v] = Vector<C>{};
  }
  const auto add_term = [&]() __attribute__((always_inline)) {
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
  };
  if constexpr (at == Reach::far) {
    constexpr int line = 64 / static_cast<int>(sizeof(A));
    // A few lines at a time: more would occupy all the buffers that loads need. Rows go to the second cache, since
    // those of two blocks may share one set of the first.
    for (int k = 0, row = 0; k < depth; k += line, ++row) {
      if (row < rows) prefetch_sums<start, vectors>(c, row);
      if (left == Left::by_row) {
        KFORMER_SIMD_UNROLL
        for (int r = rows; r < 2 * rows; ++r) __builtin_prefetch(a + r * lda, 0, 2);
      }
      if (depth - k < line) {
        for (int i = k; i < depth; ++i) add_term();
      } else {
        // So few iterations that the overhead of the loop is felt.
#pragma GCC unroll 4
        for (int i = 0; i < line; ++i) add_term();
      }
    }
  } else {
    for (int k = 0; k < depth; ++k) add_term();
  }
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const C* from = c.before + r * c.ld_before + v * W;
      if (start == Start::sum || start == Start::sum_and_addend) sum[r][v] += load(from);
      if (start == Start::scaled_sum) sum[r][v] += load(from) * load(scale + v * W);
      if (start == Start::sum_and_addend) sum[r][v] += load(c.addend + r * c.ld_addend + v * W);
      store(c.after + r * c.ld_after + v * W, sum[r][v]);
    }
  }
}

/// The `rows` that a whole number of blocks leaves over, one template step at a time.
template <Left left, Start start, Reach at, int rows, int vectors, class A, class B, class C>
KFORMER_SIMD_INLINE void product_rest(int count, int depth, const A* a, std::int64_t lda, const B* b,
                                      std::int64_t ldb, const Sums<C>& c, const C* scale) {
  if constexpr (rows > 0) {
    if (count == rows)
      product_block<left, start, at, rows, vectors>(depth, a, lda, b, ldb, c, scale);
    else
      product_rest<left, start, at, rows - 1, vectors>(count, depth, a, lda, b, ldb, c, scale);
  }
}

/// All `m` rows of a panel of `vectors` vectors.
template <Left left, Start start, int vectors, int rows = block_rows, Reach at = Reach::near, class A, class B,
          class C>
__attribute__((noinline)) void product_panel(int m, int depth, const A* a, std::int64_t lda, const B* b,
                                             std::int64_t ldb, Sums<C> c, const C* scale = nullptr) {
  static_assert(left != Left::by_block || rows == block_rows);
  const std::int64_t step = left == Left::by_column ? 1 : lda;
  int r = 0;
  for (; r + rows <= m; r += rows)
    product_block<left, start, at, rows, vectors>(depth, a + r * step, lda, b, ldb, c.from(r, 0), scale);
  product_rest<left, start, at, rows - 1, vectors>(m - r, depth, a + r * step, lda, b, ldb, c.from(r, 0),
                                                   scale);
}

/// The same with C in place, and all near.
template <Left left, Start start, int vectors, int rows = block_rows, class A, class B, class C>
void product_panel(int m, int depth, const A* a, std::int64_t lda, const B* b, std::int64_t ldb, C* c,
                   std::int64_t ldc, const C* scale = nullptr) {
  product_panel<left, start, vectors, rows>(m, depth, a, lda, b, ldb, Sums<C>(c, ldc), scale);
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
