// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "ops/common/simd/row_access.hpp"
#include "ops/common/simd/scaled_exp.hpp"
#include "ops/swiglu/host/arguments.hpp"

/// \file
/// SwiGLU of the elements of a block, forward and backward.

namespace kformer::Impl::simd::KFORMER_ISA {

using host::Block;
using host::SwigluBackwardArguments;
using host::SwigluForwardArguments;

/// silu(g) = g · σ(g) and its derivative, with σ(g) and σ(−g) both from e^(−|g|), so that nothing overflows or
/// cancels. No infinity meets a zero: at ±∞ the limits come out.
template <class C>
struct Silu {
  Vector<C> value, slope;

  KFORMER_SIMD_INLINE explicit Silu(Vector<C> g) {
    const Vector<C> one = splat(C(1)), largest = splat(Infinity<C>::largest), below = -magnitude<C>(g);
    const Vector<C> e = exp<C>(below);
    const IntegerVector<C> is_negative = g < Vector<C>{};
    const Vector<C> up = choose<C>(is_negative, e, one), down = choose<C>(is_negative, one, e), sum = one + e;
    const Vector<C> sigmoid = up / sum, finite_below = greater<C>(-largest, g);
    value = finite_below * up / sum;
    slope = sigmoid + choose<C>(finite_below > largest, largest, finite_below) * (sigmoid * (down / sum));
  }
};

/// The same with σ to 3e-7 + 1.4e-8·|g|, which rounding to 16 bits hides. Gates below −86, whose σ is below
/// 5e-38, give 0.
struct RoundedSilu {
  Vector<float> value, slope;

  KFORMER_SIMD_INLINE explicit RoundedSilu(Vector<float> g) {
    const Vector<float> one = splat(1.f), most = splat(86.f), above = greater<float>(-most, g);
    const Vector<float> sigmoid =
        choose<float>(g < -most, Vector<float>{}, reciprocal(FastScaledExp<float>(1).plus(one, -above)));
    value = above * sigmoid;
    slope = sigmoid * (one + lesser<float>(most, above) * (one - sigmoid));
  }
};

template <class T>
using SiluOf = std::conditional_t<sizeof(T) == 2, RoundedSilu, Silu<Arithmetic<T>>>;

template <class T>
void swiglu_forward(const SwigluForwardArguments& p, const Block& block) {
  using C = Arithmetic<T>;
  const std::int64_t gate_ahead = elements_ahead<T>(p.gate), up_ahead = elements_ahead<T>(p.up);
  for (std::int64_t row = block.first_row; row < block.end_row; ++row) {
    const T *gate = row_of<T>(p.gate, row) + block.first_column,
            *up = row_of<T>(p.up, row) + block.first_column;
    const RowWriter<T> y(p.y, row, block.first_column);
    for_each_vector<C>(block.columns, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
      __builtin_prefetch(gate + i + gate_ahead, 0, 2);
      __builtin_prefetch(up + i + up_ahead, 0, 2);
      y.store(i, SiluOf<T>(part.load(gate + i)).value * part.load(up + i), part);
    });
  }
  end_streams();
}

template <class T>
void swiglu_backward(const SwigluBackwardArguments& p, const Block& block) {
  using C = Arithmetic<T>;
  const std::int64_t gate_ahead = elements_ahead<T>(p.gate), up_ahead = elements_ahead<T>(p.up),
                     dy_ahead = elements_ahead<T>(p.dy);
  for (std::int64_t row = block.first_row; row < block.end_row; ++row) {
    const T *gate = row_of<T>(p.gate, row) + block.first_column,
            *up = row_of<T>(p.up, row) + block.first_column;
    const T* dy = row_of<T>(p.dy, row) + block.first_column;
    const RowWriter<T, 2> dgate(p.dgate, row, block.first_column), dup(p.dup, row, block.first_column);
    for_each_vector<C>(block.columns, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
      __builtin_prefetch(gate + i + gate_ahead, 0, 2);
      __builtin_prefetch(up + i + up_ahead, 0, 2);
      __builtin_prefetch(dy + i + dy_ahead, 0, 2);
      // All is read before anything is written, because outputs may be inputs.
      const SiluOf<T> silu(part.load(gate + i));
      const Vector<C> factor = part.load(up + i), through = part.load(dy + i);
      dgate.store(i, through * factor * silu.slope, part);
      dup.store(i, through * silu.value, part);
    });
  }
  end_streams();
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
