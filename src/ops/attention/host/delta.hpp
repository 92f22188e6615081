// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/host/rows.hpp"

/// \file
/// What backward computes first: delta = Σ_d dout · out of every row.

namespace kformer::Impl::simd::KFORMER_ISA {

template <class C>
KFORMER_SIMD_INLINE C* delta_of(const Arguments& p, const GradientArguments& g, const Sequence& s,
                                const Row& row) {
  return static_cast<C*>(g.delta) + (s.batch * p.q_heads + row.head) * g.delta_head_stride + s.q_begin +
         row.query;
}

/// sum += x·y, where a zero of x annihilates: a row that sees only a sink has out = 0, whatever dout holds.
template <class T, class C = Arithmetic<T>>
KFORMER_SIMD_INLINE void add_annihilating(Vector<C>& sum, Vector<C> x, Vector<C> y) {
  if constexpr (uses_pairs<T>)
    multiply_add_pairs(sum, as_bits<Word>(x), as_bits<Word>(y));
  else
    sum = fused_multiply_add<C>(x, choose<C>(x == Vector<C>{}, Vector<C>{}, y), sum);
}

/// delta = Σ_d dout · out, summed in the order of dP: a row that sees one key then has dP − delta = 0, exactly.
template <class T>
void attention_delta(const Arguments& p, const GradientArguments& g, const Sequence& s, const RowRange& range,
                     void* scratch) {
  using C = Arithmetic<T>;
  constexpr int W = width<C>;
  const std::int64_t stride = row_stride<C>(p.v_head_dim);
  C* out = static_cast<C*>(scratch);
  C* dout = out + W * stride;
  for (int begin = 0; begin < range.count; begin += W) {
    const int count = range.count - begin < W ? range.count - begin : W;
    for (int i = begin + W; i < begin + 2 * W && i < range.count; ++i) {
      const Row row = make_row(p, s, range, i);
      prefetch(row_data<const T>(p.out, s, row), p.v_head_dim);
      prefetch(row_data<const T>(g.dout, s, row), p.v_head_dim);
    }
    for (int i = 0; i < count; ++i) {
      const Row row = make_row(p, s, range, begin + i);
      load_row(row_data<const T>(p.out, s, row), p.v_head_dim, out + i * stride);
      load_row(row_data<const T>(g.dout, s, row), p.v_head_dim, dout + i * stride);
    }
    Vector<C> sum{};
    if constexpr (uses_pairs<T>)
      for (int i = 0; i < count; ++i) {
        pair_up(out + i * stride, padded<C>(p.v_head_dim), reinterpret_cast<Pair*>(out + i * stride));
        pair_up(dout + i * stride, padded<C>(p.v_head_dim), reinterpret_cast<Pair*>(dout + i * stride));
      }
    for (int d0 = 0; d0 < operands<T>(p.v_head_dim); d0 += W) {
      Vector<C> x[W], y[W];
      for (int i = 0; i < W; ++i) {
        x[i] = i < count ? load(out + i * stride + d0) : Vector<C>{};
        y[i] = i < count ? load(dout + i * stride + d0) : Vector<C>{};
      }
      transpose<C>(x);
      transpose<C>(y);
      const int left = operands<T>(p.v_head_dim) - d0;
      for (int d = 0; d < (left < W ? left : W); ++d) add_annihilating<T>(sum, x[d], y[d]);
    }
    for (int i = 0; i < count; ++i) *delta_of<C>(p, g, s, make_row(p, s, range, begin + i)) = sum[i];
  }
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
