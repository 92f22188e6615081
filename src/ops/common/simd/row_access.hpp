// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "ops/common/simd/rows.hpp"
#include "ops/common/simd/storage.hpp"

/// \file
/// Rows of any length as vectors: whole ones, and the part of one that remains. Non-temporal stores.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::InputRows;
using host::OutputRows;

/// The position of a loop over a row: at a whole vector, …
struct Whole {
  template <class T>
  KFORMER_SIMD_INLINE Vector<Arithmetic<T>> load(const T* from) const {
    return load_stored(from);
  }
  template <class T>
  KFORMER_SIMD_INLINE void store(T* to, Vector<Arithmetic<T>> x) const {
    store_stored(to, x);
  }
};

/// … or at the last elements of the row; the other lanes are 0.
struct First {
  std::int64_t count;

  template <class T>
  KFORMER_SIMD_INLINE Vector<Arithmetic<T>> load(const T* from) const {
    T memory[width<Arithmetic<T>>] = {};
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 2)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(memory), _mm256_maskz_loadu_epi16(mask(), from));
    else if constexpr (sizeof(T) == 4)
      _mm512_storeu_ps(memory, _mm512_maskz_loadu_ps(mask(), from));
    else
      _mm512_storeu_pd(memory, _mm512_maskz_loadu_pd(mask(), from));
#else
    for (std::int64_t i = 0; i < count; ++i) memory[i] = from[i];
#endif
    return load_stored(memory);
  }
  template <class T>
  KFORMER_SIMD_INLINE void store(T* to, Vector<Arithmetic<T>> x) const {
    T memory[width<Arithmetic<T>>];
    store_stored(memory, x);
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 2)
      _mm256_mask_storeu_epi16(to, mask(), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(memory)));
    else if constexpr (sizeof(T) == 4)
      _mm512_mask_storeu_ps(to, mask(), _mm512_loadu_ps(memory));
    else
      _mm512_mask_storeu_pd(to, mask(), _mm512_loadu_pd(memory));
#else
    for (std::int64_t i = 0; i < count; ++i) to[i] = memory[i];
#endif
  }

 private:
#if defined(__AVX512F__)
  KFORMER_SIMD_INLINE __mmask16 mask() const { return static_cast<__mmask16>((1u << count) - 1u); }
#endif
};

/// `f(i, part)` for the vectors of a row of `n` elements, `part` a `Whole` or a `First`.
template <class C, class F>
KFORMER_SIMD_INLINE void for_each_vector(std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + width<C> <= n; i += width<C>) f(i, Whole{});
  if (i < n) f(i, First{n - i});
}

/// Σ `f(i, part)` over a row; `f` gives 0 in the lanes that `part` does not have.
template <class C, class F>
KFORMER_SIMD_INLINE C sum_over(std::int64_t n, F f) {
  constexpr int chains = 4, W = width<C>;
  Vector<C> sum[chains] = {};
  std::int64_t i = 0;
  for (; i + chains * W <= n; i += chains * W) {
    KFORMER_SIMD_UNROLL
    for (int k = 0; k < chains; ++k) sum[k] += f(i + k * W, Whole{});
  }
  for (; i + W <= n; i += W) sum[0] += f(i, Whole{});
  if (i < n) sum[1] += f(i, First{n - i});
  return sum_of<C>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

template <class T>
KFORMER_SIMD_INLINE const T* row_of(const InputRows& x, std::int64_t row) {
  return static_cast<const T*>(x.data) + row * x.stride;
}

/// How many elements lie between a row and the one whose memory is requested in its turn: the next one, or a
/// later one where rows are short.
template <class T>
std::int64_t rows_ahead(const InputRows& x) {
  constexpr std::int64_t page = 4096 / sizeof(T);
  return x.stride > 0 ? (page + x.stride - 1) / x.stride * x.stride : 0;
}

/// The prefetch distance of a loop over elements: whole rows, because the end of a row need not be
/// next to the beginning of the next one, unless they are very long.
template <class T>
std::int64_t elements_ahead(const InputRows& x) {
  constexpr std::int64_t enough = 8192 / sizeof(T), too_far = 65536 / sizeof(T);
  if (x.stride <= 0 || x.stride > too_far) return enough;
  return x.stride < enough ? enough / x.stride * x.stride : x.stride;
}

/// A non-temporal store of `bytes`, to an address that is a multiple of them.
template <int bytes>
KFORMER_SIMD_INLINE void stream(void* to, const void* from) {
#if defined(__AVX512F__)
  if constexpr (bytes == 64) return _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#endif
#if defined(__AVX2__)
  if constexpr (bytes == 32)
    return _mm256_stream_si256(static_cast<__m256i*>(to),
                               _mm256_loadu_si256(static_cast<const __m256i*>(from)));
  if constexpr (bytes == 16)
    return _mm_stream_si128(static_cast<__m128i*>(to), _mm_loadu_si128(static_cast<const __m128i*>(from)));
#endif
  std::memcpy(to, from, bytes);
}

/// Writes a row from a column on, by non-temporal stores if allowed and if its begin is aligned.
/// \tparam in_turn  rows that a loop writes in turn. Of several, non-temporal stores of a quarter of a line left Zen 3 a fifth of the
///                  bandwidth of usual stores.
template <class T, int in_turn = 1>
class RowWriter {
  static constexpr bool may_stream = in_turn == 1 || width<Arithmetic<T>> * sizeof(T) >= 32;

 public:
  KFORMER_SIMD_INLINE RowWriter(const OutputRows& x, std::int64_t row, std::int64_t first_column = 0)
      : m_to(static_cast<T*>(x.data) + row * x.stride + first_column),
        m_streams(may_stream && x.streams && aligned(m_to)) {}

  KFORMER_SIMD_INLINE void store(std::int64_t i, Vector<Arithmetic<T>> x, Whole part) const {
    if (!m_streams) return part.store(m_to + i, x);
    T memory[width<Arithmetic<T>>];
    store_stored(memory, x);
    stream<sizeof(memory)>(m_to + i, memory);
  }
  KFORMER_SIMD_INLINE void store(std::int64_t i, Vector<Arithmetic<T>> x, First part) const {
    part.store(m_to + i, x);
  }
  /// The first `n` elements.
  KFORMER_SIMD_INLINE void copy(const T* from, std::int64_t n) const {
    constexpr std::int64_t whole = vector_bytes / sizeof(T);
    std::int64_t i = 0;
    for (; i + whole <= n; i += whole)
      if (m_streams)
        stream<vector_bytes>(m_to + i, from + i);
      else
        std::memcpy(m_to + i, from + i, vector_bytes);
    std::memcpy(m_to + i, from + i, (n - i) * sizeof(T));
  }

 private:
  static KFORMER_SIMD_INLINE bool aligned(const T* to) {
    return reinterpret_cast<std::uintptr_t>(to) % vector_bytes == 0;
  }

  T* m_to;
  bool m_streams;
};

/// Orders non-temporal stores before the later stores that signal other threads.
KFORMER_SIMD_INLINE void end_streams() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

/// `x` as stored and loaded again.
template <class T>
KFORMER_SIMD_INLINE Vector<Arithmetic<T>> rounded(Vector<Arithmetic<T>> x) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return rounded_to_bf16(x);
  } else {
    T memory[width<Arithmetic<T>>];
    store_stored(memory, x);
    return load_stored(memory);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
