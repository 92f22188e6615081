// SPDX-License-Identifier: MIT
#pragma once

#include "ops/rope/cuda/arguments.hpp"

/// \file
/// The rotation, in place: a thread has two chunks of 16 bytes with both components of its pairs, of a few
/// heads of a token.

namespace kformer::Impl::cuda {

// Occupancy of RopeKernel: registers limit it: they hold 16-bit pairs of four heads, and their cosines and
// sines, so one read serves four heads. A thread has eight loads of 16 bytes in flight, 768 threads
// of a multiprocessor 96 KB. Its share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per
// microsecond, and a latency is shorter: more threads would find no latency to hide.
template <class T, bool half_split>
struct RopeKernel {
  static constexpr int threads = 128, blocks_per_multiprocessor = 6, shared_bytes = 0;
  static constexpr int n = per_chunk<T>;  // pairs
  static constexpr int heads = rope_heads_per_thread;

  RopeArguments a;
  std::uint32_t count, units, groups;  // threads at work; of a head, of a token

  KFORMER_DEVICE void operator()() const {
    const std::uint32_t i =
        static_cast<std::uint32_t>(block_index()) * threads + static_cast<std::uint32_t>(thread_index());
    if (i >= count) return;
    const int unit = static_cast<int>(i % units), group = static_cast<int>(i / units % groups);
    const std::int64_t token = i / units / groups, batch = token / a.seq, place = token % a.seq;
    T* at[heads];
    Chunk first[heads], second[heads];
    KFORMER_DEVICE_UNROLL
    for (int h = 0; h < heads; ++h) {
      at[h] = pairs(batch, place, group + h * static_cast<std::int64_t>(groups), unit);
      if (!at[h]) continue;
      first[h] = load_words<4>(at[h]);
      second[h] = load_words<4>(at[h] + distance());
    }
    float cos[n], sin[n];
    load_angles(batch, place, unit, cos, sin);
    KFORMER_DEVICE_UNROLL
    for (int h = 0; h < heads; ++h)
      if (at[h]) rotate(at[h], first[h], second[h], cos, sin);
  }

 private:
  /// From one chunk of a thread to the other.
  KFORMER_DEVICE std::int64_t distance() const { return half_split ? a.half : n; }

  /// The thread's pairs of a head, those of k after those of q; null if there is none.
  KFORMER_DEVICE T* pairs(std::int64_t batch, std::int64_t place, std::int64_t head, int unit) const {
    if (head >= a.q.heads + a.k.heads) return nullptr;
    const bool is_query = head < a.q.heads;
    const RopeHeads& x = is_query ? a.q : a.k;
    return static_cast<T*>(x.data) + batch * x.batch_stride + place * x.token_stride +
           (is_query ? head : head - a.q.heads) * x.head_stride + (half_split ? n : 2 * n) * unit;
  }

  /// NaN for a position outside of the tables.
  KFORMER_DEVICE void load_angles(std::int64_t batch, std::int64_t place, int unit, float (&cos)[n],
                                  float (&sin)[n]) const {
    const std::int64_t position =
        a.positions ? a.positions[batch * a.positions_batch_stride + place] : a.first_position + place;
    const bool inside = position >= 0 && position < a.table_rows;
    const float outside = bits_as_float(0x7fc00000u);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; i += 4) {
      float c[4] = {outside, outside, outside, outside}, s[4] = {outside, outside, outside, outside};
      if (inside) {
        const std::int64_t chunk = (unit * n + i) / 4;
        widen<float>(load_row_chunk<float>(a.cos, position, chunk), c);
        widen<float>(load_row_chunk<float>(a.sin, position, chunk), s);
      }
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < 4; ++k) cos[i + k] = c[k], sin[i + k] = static_cast<float>(a.direction) * s[k];
    }
  }

  KFORMER_DEVICE void rotate(T* at, const Chunk& first, const Chunk& second, const float (&cos)[n],
                             const float (&sin)[n]) const {
    float x[2][n];
    widen<T>(first, x[0]), widen<T>(second, x[1]);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      float& u = half_split ? x[0][i] : x[2 * i / n][2 * i % n];
      float& v = half_split ? x[1][i] : x[2 * i / n][2 * i % n + 1];
      const float turned = u * cos[i] - v * sin[i];
      v = v * cos[i] + u * sin[i];
      u = turned;
    }
    store_words(at, narrowed<T>(x[0]));
    store_words(at + distance(), narrowed<T>(x[1]));
  }
};

}  // namespace kformer::Impl::cuda
