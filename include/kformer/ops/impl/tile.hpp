// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <type_traits>

#include "kformer/ops/impl/launch.hpp"

/// \file
/// Small matrix products inside a team, on tiles in scratch memory: the arithmetic of the portable matrix
/// product and of portable flash attention.
///
/// Both operands are stored with the summed index slowest ("k-major"), so the inner loop runs along contiguous
/// columns. Tiles are padded with zeros to whole register blocks; nothing inside tests for edges.

/// \def KFORMER_UNROLL
/// Unrolls the loop that follows: register blocks stay in registers only if every loop over them is unrolled.
#if defined(__CUDACC__) || defined(__clang__)
#define KFORMER_UNROLL _Pragma("unroll")
#else
#define KFORMER_UNROLL _Pragma("GCC unroll 32")
#endif

namespace kformer::Impl {

/// Bytes of the vector registers this file is compiled for; only the shape of the register block depends on it.
#if defined(__AVX512F__)
inline constexpr int host_vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int host_vector_bytes = 32;
#else
inline constexpr int host_vector_bytes = 16;
#endif

/// The block of results one thread keeps in registers: `rows` × `cols`.
template <class Exec, class C>
struct RegisterBlock {
  static constexpr int rows = 4;
  static constexpr int cols = is_host_space<Exec> ? 2 * host_vector_bytes / static_cast<int>(sizeof(C)) : 4;
};

/// `n` rounded up to a multiple of `block`.
KOKKOS_INLINE_FUNCTION constexpr int padded(int n, int block) { return ceil_div(n, block) * block; }

/// c(m, n) = [c +] Σ_k a(k, m) · b(k, n), for `m` a multiple of RegisterBlock::rows and `n` one of
/// RegisterBlock::cols. The team shares the work; the caller puts a barrier before the tiles are read or
/// changed.
template <class Exec, bool accumulate, class C>
KOKKOS_FUNCTION void tile_product(const TeamMember<Exec>& team, int m, int n, int k, const C* KOKKOS_RESTRICT a,
                                  int lda, const C* KOKKOS_RESTRICT b, int ldb, C* KOKKOS_RESTRICT c, int ldc) {
  constexpr int MR = RegisterBlock<Exec, C>::rows, NR = RegisterBlock<Exec, C>::cols;
  const int blocks_n = n / NR;
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, m / MR * blocks_n), [&](int block) {
    const int i0 = block / blocks_n * MR, j0 = block % blocks_n * NR;
    C sum[MR][NR];
    KFORMER_UNROLL
    for (int i = 0; i < MR; ++i) KFORMER_UNROLL
    for (int j = 0; j < NR; ++j) sum[i][j] = accumulate ? c[(i0 + i) * ldc + j0 + j] : C(0);
    const C* KOKKOS_RESTRICT ak = a + i0;
    const C* KOKKOS_RESTRICT bk = b + j0;
    for (int kk = 0; kk < k; ++kk, ak += lda, bk += ldb) KFORMER_UNROLL
    for (int i = 0; i < MR; ++i) KFORMER_UNROLL
    for (int j = 0; j < NR; ++j) sum[i][j] += ak[i] * bk[j];
    KFORMER_UNROLL
    for (int i = 0; i < MR; ++i) KFORMER_UNROLL
    for (int j = 0; j < NR; ++j) c[(i0 + i) * ldc + j0 + j] = sum[i][j];
  });
}

}  // namespace kformer::Impl
