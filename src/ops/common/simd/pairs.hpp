// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/storage.hpp"

/// \file
/// Pairs of bfloat16 for processors that multiply and add two of them at once (AVX512_BF16). A pair is two
/// neighbours along the summed index of a product; products are exact and sums are float.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Two bfloat16, the first in the lower half.
struct Pair {
  std::uint32_t bits;
};

#if defined(__AVX512BF16__)
inline constexpr bool has_pair_products = true;
#else
inline constexpr bool has_pair_products = false;
#endif

/// Whether products of T take pairs.
template <class T>
inline constexpr bool uses_pairs = false;
template <>
inline constexpr bool uses_pairs<Bf16> = has_pair_products;

/// What products of T take: pairs, or numbers of the type of arithmetic.
template <class T, bool pairs = uses_pairs<T>>
struct OperandOf {
  using type = Arithmetic<T>;
};
template <class T>
struct OperandOf<T, true> {
  using type = Pair;
};
template <class T>
using Operand = typename OperandOf<T>::type;

/// Numbers in one operand.
template <class T>
inline constexpr int per_operand = uses_pairs<T> ? 2 : 1;

/// Operands in `n` numbers, rounded up.
template <class T>
constexpr int operands(int n) {
  return (n + per_operand<T> - 1) / per_operand<T>;
}

#if defined(__AVX512BF16__)

/// `to[i] = (first[i], second[i])` for numbers that are rounded to bfloat16; `second` may be null: zeros.
KFORMER_SIMD_INLINE void zip_rows(const float* first, const float* second, int n, Pair* to) {
  for (int i = 0; i < n; i += width<float>) {
    const Word low = nearest_bf16(load(first + i));
    const Word high = second ? nearest_bf16(load(second + i)) : Word{};
    const Word pairs = low | (high << 16);
    std::memcpy(to + i, &pairs, sizeof(pairs));
  }
}

/// Neighbours of one row become pairs: `to[i] = (row[2i], row[2i + 1])`, `n` numbers.
KFORMER_SIMD_INLINE void pair_up(const float* row, int n, Pair* to) {
  for (int i = 0; i < n; i += width<float>) {
    const __m256bh half = _mm512_cvtneps_pbh(load(row + i));
    std::memcpy(to + i / 2, &half, sizeof(half));
  }
}

/// Stored neighbours of two rows become pairs of one feature each, in the order of the features.
KFORMER_SIMD_INLINE void zip_operands(__m512bh (&x)[2]) {
  typedef std::uint16_t Half __attribute__((vector_size(64)));
  Half low;
  for (int i = 0; i < 32; ++i) low[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 32);
  const auto zip = [&](Half places) {
    return as_bits<__m512bh>(
        _mm512_permutex2var_epi16(as_bits<__m512i>(x[0]), as_bits<__m512i>(places), as_bits<__m512i>(x[1])));
  };
  const __m512bh first = zip(low);
  x[1] = zip(low + std::uint16_t(16));
  x[0] = first;
}

/// The same on their bits.
KFORMER_SIMD_INLINE void zip_bits(Vector<float> (&x)[2]) {
  __m512bh both[2] = {as_bits<__m512bh>(x[0]), as_bits<__m512bh>(x[1])};
  zip_operands(both);
  x[0] = as_bits<Vector<float>>(both[0]);
  x[1] = as_bits<Vector<float>>(both[1]);
}

/// sum += x₀·y₀ + x₁·y₁ lane by lane, where a zero of x annihilates.
KFORMER_SIMD_INLINE void multiply_add_pairs(Vector<float>& sum, Word x, Word y) {
  const Word low = as_bits<Word>((x & 0x7fffu) != 0u) & 0xffffu;
  const Word high = as_bits<Word>((x & 0x7fff0000u) != 0u) & 0xffff0000u;
  sum = _mm512_dpbf16_ps(sum, as_bits<__m512bh>(x), as_bits<__m512bh>(y & (low | high)));
}

#else

// Never called; named in branches that are not compiled for other instruction sets.
void zip_rows(const float* first, const float* second, int n, Pair* to);
void pair_up(const float* row, int n, Pair* to);
void zip_bits(Vector<float> (&x)[2]);
void multiply_add_pairs(Vector<float>& sum, Word x, Word y);

#endif

}  // namespace kformer::Impl::simd::KFORMER_ISA
