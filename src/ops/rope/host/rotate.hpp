// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/row_access.hpp"
#include "ops/rope/host/arguments.hpp"

/// \file
/// The rotation of all heads of a token. Cosines and sines of a few vectors of pairs stay in registers while
/// the heads pass by.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::RopeArguments;
using host::RopeHeads;

/// `n` vectors of pairs (x[i], x[i + half]).
template <class T, int n>
class SplitPairs {
  using C = Arithmetic<T>;

 public:
  template <class Part>
  KFORMER_SIMD_INLINE SplitPairs(const C* cos, const C* sin, C direction, std::int64_t first, std::int64_t half,
                                 Part part)
      : m_first(first), m_second(first + half) {
    KFORMER_SIMD_UNROLL
    for (int j = 0; j < n; ++j) {
      m_cos[j] = part.load(cos + first + j * width<C>);
      m_sin[j] = part.load(sin + first + j * width<C>) * splat(direction);
    }
  }
  template <class Part>
  KFORMER_SIMD_INLINE void rotate(T* head, Part part) const {
    KFORMER_SIMD_UNROLL
    for (int j = 0; j < n; ++j) {
      T *a = head + m_first + j * width<C>, *b = head + m_second + j * width<C>;
      const Vector<C> u = part.load(a), v = part.load(b);
      part.store(a, u * m_cos[j] - v * m_sin[j]);
      part.store(b, v * m_cos[j] + u * m_sin[j]);
    }
  }

 private:
  std::int64_t m_first, m_second;
  Vector<C> m_cos[n], m_sin[n];
};

/// Neighbouring lanes exchanged.
template <class C, std::size_t... i>
KFORMER_SIMD_INLINE Vector<C> swap_neighbours(Vector<C> x, std::index_sequence<i...>) {
  return __builtin_shufflevector(x, x, (i ^ 1)...);
}

/// `n` vectors of pairs (x[2i], x[2i + 1]): x · (cos, cos, …) + (neighbour of x) · (−sin, sin, …).
template <class T, int n>
class NeighbourPairs {
  using C = Arithmetic<T>;
  static constexpr auto lanes = std::make_index_sequence<width<C>>{};

 public:
  template <class Part>
  KFORMER_SIMD_INLINE NeighbourPairs(const C* cos, const C* sin, C direction, std::int64_t first, std::int64_t,
                                     Part part)
      : m_first(2 * first) {
    KFORMER_SIMD_UNROLL
    for (int j = 0; j < n; ++j) {
      const Vector<C> c = part.load(cos + first + j * width<C>);
      const Vector<C> s = part.load(sin + first + j * width<C>) * splat(direction);
      m_cos[2 * j] = zip_low<C>(c, c, lanes);
      m_cos[2 * j + 1] = zip_high<C>(c, c, lanes);
      m_sin[2 * j] = zip_low<C>(-s, s, lanes);
      m_sin[2 * j + 1] = zip_high<C>(-s, s, lanes);
    }
  }
  KFORMER_SIMD_INLINE void rotate(T* head, Whole part) const {
    KFORMER_SIMD_UNROLL
    for (int j = 0; j < 2 * n; ++j) rotate(head + m_first + j * width<C>, j, part);
  }
  KFORMER_SIMD_INLINE void rotate(T* head, First part) const {
    static_assert(n == 1);
    const std::int64_t count = 2 * part.count, low = smaller(count, width<C>);
    rotate(head + m_first, 0, First{low});
    rotate(head + m_first + low, 1, First{count - low});
  }

 private:
  template <class Part>
  KFORMER_SIMD_INLINE void rotate(T* at, int j, Part part) const {
    const Vector<C> x = part.load(at);
    part.store(at, x * m_cos[j] + swap_neighbours<C>(x, lanes) * m_sin[j]);
  }

  std::int64_t m_first;
  Vector<C> m_cos[2 * n], m_sin[2 * n];
};

/// `f(head, next)` for the heads of a token in both arrays, `next` the same head of the next token.
template <class T, class F>
KFORMER_SIMD_INLINE void for_each_head(const RopeArguments& p, std::int64_t token, F f) {
  const auto each = [&](const RopeHeads& x) __attribute__((always_inline)) {
    T* head = static_cast<T*>(x.data) + token / p.seq * x.batch_stride + token % p.seq * x.token_stride;
    for (std::int64_t h = 0; h < x.heads; ++h, head += x.head_stride) f(head, head + x.token_stride);
  };
  each(p.q);
  each(p.k);
}

template <class T, template <class, int> class Pairs>
void rope_rotate(const RopeArguments& p, std::int64_t first_token, std::int64_t end) {
  using C = Arithmetic<T>;
  constexpr int W = width<C>;
  for (std::int64_t token = first_token; token < end; ++token) {
    const std::int64_t s = token % p.seq;
    const std::int64_t position =
        p.positions ? p.positions[token / p.seq * p.positions_batch_stride + s] : p.first_position + s;
    if (position < 0 || position >= p.table_rows) {
      const Vector<C> nan = splat(static_cast<C>(__builtin_nanf("")));
      for_each_head<T>(p, token, [&](T* head, const T*) __attribute__((always_inline)) {
        for_each_vector<C>(2 * p.half, [&](std::int64_t i, auto part)
                                           __attribute__((always_inline)) { part.store(head + i, nan); });
      });
      continue;
    }
    const C *cos = row_of<C>(p.cos, position), *sin = row_of<C>(p.sin, position);
    const auto rotate = [&]<int n>(std::int64_t i, auto part) __attribute__((always_inline)) {
      const Pairs<T, n> pairs(cos, sin, static_cast<C>(p.direction), i, p.half, part);
      for_each_head<T>(p, token, [&](T* head, const T* next) __attribute__((always_inline)) {
        KFORMER_SIMD_UNROLL
        for (int j = 0; j < n; ++j) {
          __builtin_prefetch(next + i + j * W, 1, 2);
          __builtin_prefetch(next + i + j * W + p.half, 1, 2);
        }
        pairs.rotate(head, part);
      });
    };
    std::int64_t i = 0;
    for (; i + 4 * W <= p.half; i += 4 * W) rotate.template operator()<4>(i, Whole{});
    if (i + 2 * W <= p.half) {
      rotate.template operator()<2>(i, Whole{});
      i += 2 * W;
    }
    if (i + W <= p.half) {
      rotate.template operator()<1>(i, Whole{});
      i += W;
    }
    if (i < p.half) rotate.template operator()<1>(i, First{p.half - i});
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
