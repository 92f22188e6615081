// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/rows.hpp"

/// \file
/// Products of few rows with many keys or values, which come from memory: features are lanes, and what the next
/// visit reads is prefetched line by line while this one computes. The load queue alone does not hold enough
/// lines to cover the latency, and a burst of requests fills the queue of misses.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Values that are summed before the next features are: a row of them is read in several goes, and few rows
/// stay in the first-level cache until then.
inline constexpr int value_block = 8;

/// Keys or values of one head, in memory.
template <class T>
struct Stream {
  const T* first;
  std::int64_t stride;
  int count;
  std::int64_t ahead;  // in bytes: where the next visit reads

  /// Prefetches the line of the next visit that corresponds to `at`, for the second-level cache.
  KFORMER_SIMD_INLINE void ask(const T* at) const {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (stored_width<T> * sizeof(T) == 64 || address % 64 < stored_width<T> * sizeof(T))
      // A pointer may not be moved outside its array. NOLINTNEXTLINE(performance-no-int-to-ptr)
      __builtin_prefetch(reinterpret_cast<const void*>(address + ahead), 0, 2);
  }
};

/// The same address; the compiler no longer knows what it points to and loads from it again. Lines that are
/// read several times are fetched ahead more eagerly: operands that need no conversion are loaded anew for
/// every row.
template <class T>
KFORMER_SIMD_INLINE const T* once_more(const T* at) {
  asm("" : "+r"(at));
  return at;
}
template <class T>
inline constexpr bool is_operand = uses_pairs<T> || sizeof(T) == sizeof(Arithmetic<T>);

/// Sums every vector of `x`; lane i of the result, and of every `n` lanes more, is the sum of `x[i]`.
template <class C, int n>
KFORMER_SIMD_INLINE Vector<C> sum_each(const Vector<C> (&x)[n]) {
  if constexpr (n == 1) {
    return x[0];
  } else {
    constexpr auto indices = std::make_index_sequence<width<C>>{};
    Vector<C> y[n / 2];
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < n / 2; ++i)
      y[i] = zip_low<C>(x[i], x[i + n / 2], indices) + zip_high<C>(x[i], x[i + n / 2], indices);
    return sum_each<C>(y);
  }
}

/// `scores[r · ld + j] = q(r) · k(j)` for `rows` rows; q is padded with zeros to whole vectors. Writes up to
/// the next multiple of width / rows.
template <int rows, class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void dot_products(const Operand<T>* q, std::int64_t q_stride, const Stream<T>& k, int dim,
                                      C* scores, std::int64_t ld) {
  constexpr int W = width<C>, together = W / rows, step = stored_width<T>;
  using Factor = decltype(right_factor(q));
  for (int j0 = 0; j0 < k.count; j0 += together) {
    Vector<C> sum[W];
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < W; ++i) sum[i] = Vector<C>{};
    const T* key[together];
    // Beyond the last key the last one is read again.
    for (int j = 0; j < together; ++j) key[j] = k.first + (j0 + j < k.count ? j0 + j : k.count - 1) * k.stride;
    const auto add = [&](int d, auto features_of) {
      Factor row[rows];
      KFORMER_SIMD_UNROLL
      for (int r = 0; r < rows; ++r) row[r] = right_factor(q + r * q_stride + d / per_operand<T>);
      KFORMER_SIMD_UNROLL
      for (int j = 0; j < together; ++j) {
        const T* at = key[j] + d;
        k.ask(at);
        Factor x = features_of(at);
        KFORMER_SIMD_UNROLL
        for (int r = 0; r < rows; ++r) {
          multiply_add(sum[r * together + j], row[r], x);
          if constexpr (is_operand<T>) x = features_of(at = once_more(at));
        }
      }
    };
    int d = 0;
    for (; d + step <= dim; d += step) add(d, [](const T* from) { return load_operands(from); });
    if (d < dim) add(d, [&](const T* from) { return load_operands(from, dim - d); });
    const Vector<C> total = sum_each<C>(sum);
    KFORMER_SIMD_UNROLL
    for (int r = 0; r < rows; ++r)
      std::memcpy(scores + r * ld + j0, reinterpret_cast<const C*>(&total) + r * together,
                  together * sizeof(C));
  }
}

/// A block of `rows` rows and `groups` vectors of stored features: `sums[r · sums_ld + i] += Σ_j w(r, j)·v(j,
/// i)`, summed by itself and then added. Weights are operands, pairs being neighbouring keys; `last` > 0 is the
/// number of features if there are fewer than `groups` vectors of them. Sums are padded to whole groups.
template <int rows, int groups, class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void weighted_sums_block(const Operand<T>* weights, std::int64_t ld, const Stream<T>& v,
                                             int last, C* sums, std::int64_t sums_ld) {
  constexpr int W = width<C>, pair = per_operand<T>, vectors = groups * pair;
  using Factor = decltype(load_operands(v.first));
  Vector<C> sum[rows][vectors];
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < vectors; ++i) sum[r][i] = Vector<C>{};
  }
  const auto add_all = [&](auto features_at) {
    const T* value = v.first;
    for (int j = 0; j < v.count; j += pair, value += pair * v.stride) {
      KFORMER_SIMD_UNROLL
      for (int n = 0; n < groups; ++n) {
        const T* at;
        Factor x[pair];
        KFORMER_SIMD_UNROLL
        for (int i = 0; i < pair; ++i) {
          at = value + i * v.stride + n * stored_width<T>;
          v.ask(at);
          x[i] = j + i < v.count ? features_at(at) : Factor{};
        }
        if constexpr (pair == 2) zip_operands(x);
        KFORMER_SIMD_UNROLL
        for (int r = 0; r < rows; ++r) {
          const auto weight = left_factor(weights[r * ld + j / pair]);
          KFORMER_SIMD_UNROLL
          for (int i = 0; i < pair; ++i) multiply_add(sum[r][n * pair + i], weight, x[i]);
          if constexpr (is_operand<T> && pair == 1) x[0] = features_at(at = once_more(at));
        }
      }
    }
  };
  if (last > 0)
    add_all([=](const T* from) { return load_operands(from, last); });
  else
    add_all([](const T* from) { return load_operands(from); });
  KFORMER_SIMD_UNROLL
  for (int r = 0; r < rows; ++r) {
    KFORMER_SIMD_UNROLL
    for (int i = 0; i < vectors; ++i) {
      C* to = sums + r * sums_ld + i * W;
      store<C>(to, load(to) + sum[r][i]);
    }
  }
}

/// The same for all `dim` features.
template <int rows, class T, class C = Arithmetic<T>>
void weighted_sums(const Operand<T>* weights, std::int64_t ld, const Stream<T>& v, int dim, C* sums,
                   std::int64_t sums_ld) {
  constexpr int wide = (vector_registers == 32 ? 4 : 2) / per_operand<T>, step = stored_width<T>;
  for (int j = 0; j < v.count; j += value_block) {
    const int count = v.count - j < value_block ? v.count - j : value_block;
    const auto from = [&](int d) { return Stream<T>{v.first + j * v.stride + d, v.stride, count, v.ahead}; };
    const Operand<T>* w = weights + j / per_operand<T>;
    int d = 0;
    for (; d + wide * step <= dim; d += wide * step)
      weighted_sums_block<rows, wide>(w, ld, from(d), 0, sums + d, sums_ld);
    for (; d < dim; d += step)
      weighted_sums_block<rows, 1>(w, ld, from(d), dim - d < step ? dim - d : 0, sums + d, sums_ld);
  }
}

/// Calls `f(r)` for all rows in [0, count), several at a time: their number is its template parameter.
template <class C, int most = 8, class F>
KFORMER_SIMD_INLINE void by_rows(int count, F f, int r = 0) {
  if constexpr (most > 0) {
    if constexpr (most <= width<C>)
      for (; r + most <= count; r += most) f.template operator()<most>(r);
    by_rows<C, most / 2>(count, f, r);
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
