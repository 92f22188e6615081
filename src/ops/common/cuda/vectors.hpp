// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/numbers.hpp"
#include "ops/common/simd/rows.hpp"

/// \file
/// Rows of a matrix in 16-byte chunks, and sums over the threads of a row in a fixed order.

namespace kformer::Impl::cuda {

/// Chunk `chunk` of row `row`.
template <class T>
KFORMER_DEVICE Chunk load_row_chunk(const host::InputRows& x, std::int64_t row, std::int64_t chunk) {
  return load_words<4>(static_cast<const T*>(x.data) + row * x.stride + chunk * per_chunk<T>);
}
template <class T>
KFORMER_DEVICE void store_row_chunk(const host::OutputRows& x, std::int64_t row, std::int64_t chunk,
                                    const Chunk& value) {
  store_words(static_cast<T*>(x.data) + row * x.stride + chunk * per_chunk<T>, value);
}

/// A sum, and the rounding errors of its additions.
struct ExactSum {
  float sum, lost;
};

struct Sum {
  KFORMER_DEVICE float operator()(float a, float b) const { return a + b; }
  KFORMER_DEVICE double operator()(double a, double b) const { return a + b; }
  KFORMER_DEVICE ExactSum operator()(const ExactSum& a, const ExactSum& b) const {
    const float sum = a.sum + b.sum, of_b = sum - a.sum;
    return {sum, (a.sum - (sum - of_b)) + (b.sum - of_b) + (a.lost + b.lost)};
  }
};
struct Largest {
  KFORMER_DEVICE float operator()(float a, float b) const { return largest(a, b); }
};

KFORMER_DEVICE float of_lane_xor(float x, int lanes) { return shuffle_xor(x, lanes); }
KFORMER_DEVICE double of_lane_xor(double x, int lanes) { return shuffle_xor(x, lanes); }
KFORMER_DEVICE ExactSum of_lane_xor(const ExactSum& x, int lanes) {
  return {shuffle_xor(x.sum, lanes), shuffle_xor(x.lost, lanes)};
}

/// Of the 32 lanes of a warp, the same bits in each.
template <class Value, class Combine>
KFORMER_DEVICE Value over_warp(Value x, Combine combine) {
  KFORMER_DEVICE_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) x = combine(x, of_lane_xor(x, lanes));
  return x;
}

/// Of the threads of a row: of a warp, or of a block, which meets at a barrier. `slots` are `warps` values in
/// shared memory that no other code uses until the next barrier after this one.
template <int warps, class Value, class Combine>
KFORMER_DEVICE Value over_row(Value x, Combine combine, SharedAddress slots) {
  constexpr auto bytes = static_cast<SharedAddress>(sizeof(Value));
  x = over_warp(x, combine);
  if constexpr (warps > 1) {
    if (thread_index() % 32 == 0)
      store_shared(slots + bytes * static_cast<SharedAddress>(thread_index() / 32), x);
    block_barrier();
    x = load_shared<Value>(slots);
    KFORMER_DEVICE_UNROLL
    for (int warp = 1; warp < warps; ++warp) x = combine(x, load_shared<Value>(slots + bytes * warp));
  }
  return x;
}

}  // namespace kformer::Impl::cuda
