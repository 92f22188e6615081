// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/instructions.hpp"
#include "ops/common/simd/rows.hpp"

/// \file
/// Arrays as kernels that memory limits see them: 16 bytes per access, arithmetic in float, and sums over the
/// threads of a row in a fixed order.

namespace kformer::Impl::cuda {

/// A storage type in chunks of 16 bytes.
template <Half type>
struct HalfStorage {
  using Element = std::uint16_t;
  static constexpr int per_chunk = 8;

  KFORMER_DEVICE static void unpack(const Chunk& chunk, float (&x)[per_chunk]) {
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < per_chunk; ++i)
      x[i] = cuda::unpack<type>(static_cast<std::uint16_t>(chunk.word[i / 2] >> 16 * (i % 2)));
  }
  /// Rounds to nearest.
  KFORMER_DEVICE static Chunk pack(const float (&x)[per_chunk]) {
    Chunk chunk;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) chunk.word[i] = cuda::pack<type>(x[2 * i], x[2 * i + 1]);
    return chunk;
  }
};
struct FloatStorage {
  using Element = float;
  static constexpr int per_chunk = 4;

  KFORMER_DEVICE static void unpack(const Chunk& chunk, float (&x)[per_chunk]) {
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < per_chunk; ++i) x[i] = bits_as_float(chunk.word[i]);
  }
  KFORMER_DEVICE static Chunk pack(const float (&x)[per_chunk]) {
    Chunk chunk;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < per_chunk; ++i) chunk.word[i] = float_as_bits(x[i]);
    return chunk;
  }
};

enum class Storage { f32, bf16, f16 };

/// `f.operator()<the storage type>()`.
template <class F>
void with_storage(Storage storage, F f) {
  if (storage == Storage::f32)
    f.template operator()<FloatStorage>();
  else if (storage == Storage::bf16)
    f.template operator()<HalfStorage<Half::bf16>>();
  else
    f.template operator()<HalfStorage<Half::f16>>();
}

/// Chunk `chunk` of row `row`.
template <class T>
KFORMER_DEVICE Chunk load_row_chunk(const host::InputRows& x, std::int64_t row, std::int64_t chunk) {
  return load_chunk(static_cast<const typename T::Element*>(x.data) + row * x.stride + chunk * T::per_chunk);
}
template <class T>
KFORMER_DEVICE void store_row_chunk(const host::OutputRows& x, std::int64_t row, std::int64_t chunk,
                                    const Chunk& value) {
  store_chunk(static_cast<typename T::Element*>(x.data) + row * x.stride + chunk * T::per_chunk, value);
}

/// A sum, and what its roundings lost.
struct ExactSum {
  float sum, lost;
};

struct Sum {
  KFORMER_DEVICE float operator()(float a, float b) const { return a + b; }
  KFORMER_DEVICE ExactSum operator()(const ExactSum& a, const ExactSum& b) const {
    const float sum = a.sum + b.sum, of_b = sum - a.sum;
    return {sum, (a.sum - (sum - of_b)) + (b.sum - of_b) + (a.lost + b.lost)};
  }
};
struct Largest {
  KFORMER_DEVICE float operator()(float a, float b) const { return largest(a, b); }
};

KFORMER_DEVICE float of_lane_xor(float x, int lanes) { return shuffle_xor(x, lanes); }
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
/// shared memory that nobody else uses until the next barrier after this one.
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
