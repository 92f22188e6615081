// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/storage.hpp"

/// \file
/// The largest of stored numbers. Those of 16 bits are compared as integers, twice as many at once.

namespace kformer::Impl::simd::KFORMER_ISA {

template <class E>
KFORMER_SIMD_INLINE Vector<E> larger_lanes(Vector<E> a, Vector<E> b) {
  return a > b ? a : b;
}
template <>
KFORMER_SIMD_INLINE Vector<float> larger_lanes<float>(Vector<float> a, Vector<float> b) {
  return greater<float>(a, b);
}
template <>
KFORMER_SIMD_INLINE Vector<double> larger_lanes<double>(Vector<double> a, Vector<double> b) {
  return greater<double>(a, b);
}

template <class E>
KFORMER_SIMD_INLINE E largest_lane(Vector<E> x) {
  E lane[width<E>];
  store(lane, x);
  KFORMER_SIMD_UNROLL
  for (int half = width<E> / 2; half > 0; half /= 2) KFORMER_SIMD_UNROLL
  for (int i = 0; i < half; ++i) lane[i] = lane[i + half] > lane[i] ? lane[i + half] : lane[i];
  return lane[0];
}

/// Numbers as what is compared: themselves, or integers of the same order.
template <class T>
struct Ordered {
  using Element = T;
  using State = Vector<T>;
  static KFORMER_SIMD_INLINE State of(Vector<T> x) { return x; }
  static KFORMER_SIMD_INLINE State join(State a, State b) { return larger_lanes<T>(a, b); }
};

/// Sign and magnitude as two's complement, which takes the same step back. NaN is beyond all numbers, on the
/// side of its sign.
struct OrderedHalf {
  using Element = std::int16_t;
  using State = Vector<Element>;
  static KFORMER_SIMD_INLINE State of(State x) { return x ^ ((x >> 15) & Element(0x7fff)); }
  static KFORMER_SIMD_INLINE State join(State a, State b) { return larger_lanes<Element>(a, b); }
};
template <>
struct Ordered<Bf16> : OrderedHalf {};
template <>
struct Ordered<F16> : OrderedHalf {};

/// The bits of 16-bit numbers as signed integers, whose largest is the largest positive number if there is one,
/// and as unsigned ones, whose largest is the most negative number if there is one.
struct HalfBits {
  using Element = std::int16_t;
  using Unsigned = std::uint16_t;
  struct State {
    Vector<Element> positive;
    Vector<Unsigned> negative;
  };
  static KFORMER_SIMD_INLINE State of(Vector<Element> x) { return {x, as_bits<Vector<Unsigned>>(x)}; }
  static KFORMER_SIMD_INLINE State join(State a, State b) {
    return {larger_lanes<Element>(a.positive, b.positive), larger_lanes<Unsigned>(a.negative, b.negative)};
  }
};

/// All of `n` ≥ 1 numbers joined lane by lane; some more than once.
template <class Order, class T>
KFORMER_SIMD_INLINE typename Order::State join_all(const T* from, int n) {
  using E = typename Order::Element;
  using State = typename Order::State;
  constexpr int W = width<E>, chains = 4;
  const auto load_at = [](const T* at) __attribute__((always_inline)) {
    Vector<E> x;
    std::memcpy(&x, at, sizeof(x));
    return Order::of(x);
  };
  T few[W];
  if (n < W) {
    for (int i = 0; i < W; ++i) few[i] = from[i < n ? i : 0];
    from = few;
    n = W;
  }
  const State first = load_at(from);
  State all[chains] = {first, first, first, first};
  int i = W;
  for (; i + chains * W <= n; i += chains * W) KFORMER_SIMD_UNROLL
  for (int k = 0; k < chains; ++k) all[k] = Order::join(load_at(from + i + k * W), all[k]);
  for (; i + W <= n; i += W) all[0] = Order::join(load_at(from + i), all[0]);
  all[1] = Order::join(load_at(from + n - W), all[1]);
  return Order::join(Order::join(all[0], all[1]), Order::join(all[2], all[3]));
}

/// The number that the bits are.
template <class T>
KFORMER_SIMD_INLINE float number_of(std::int16_t bits) {
  T number[width<float>] = {};
  std::memcpy(number, &bits, sizeof(bits));
  return load_stored(number)[0];
}

/// The largest of `n` ≥ 1 numbers. NaN among them may be skipped or be the largest.
template <class T>
KFORMER_SIMD_INLINE Arithmetic<T> largest_stored(const T* from, int n) {
  using Order = Ordered<T>;
  const auto largest = largest_lane<typename Order::Element>(join_all<Order>(from, n));
  if constexpr (sizeof(T) == 2)
    return number_of<T>(Order::of(splat(largest))[0]);
  else
    return largest;
}

/// The largest of `n` ≥ 1 numbers of 16 bits, and whether the magnitude of none, nor a NaN, is above `limit`.
template <class T>
struct HalfRange {
  float largest;
  bool within;

  KFORMER_SIMD_INLINE HalfRange(const T* from, int n, float limit) {
    const HalfBits::State bits = join_all<HalfBits>(from, n);
    const std::int16_t positive = largest_lane<std::int16_t>(bits.positive);
    const float least = number_of<T>(static_cast<std::int16_t>(largest_lane<std::uint16_t>(bits.negative)));
    largest = positive >= 0 ? number_of<T>(positive) : largest_stored(from, n);
    within = largest <= limit && least >= -limit;
  }
};

}  // namespace kformer::Impl::simd::KFORMER_ISA
