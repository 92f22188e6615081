// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/cuda/dot_arguments.hpp"

/// \file
/// Few rows of x by W, of which every byte is read once: a block of threads has four rows of W, and each of its
/// threads every 128th chunk of them. The sum of a row of x has the same order whatever the other rows are.

namespace kformer::Impl::cuda {

// Occupancy of LinearDotKernel: registers limit it: a thread has eight loads of 16 bytes of W in flight, 512 threads of a
// multiprocessor 64 KB. Its share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per microsecond, and a
// latency is shorter.
template <class T, int rows>
struct LinearDotKernel {
  static constexpr int threads = linear_dot_threads, blocks_per_multiprocessor = 4;
  static constexpr int warps = threads / 32, sums = linear_dot_cols * rows, shared_bytes = 4 * warps * sums;
  /// Chunks of each row of W that are in flight.
  static constexpr int depth = 2;
  static constexpr int numbers = per_chunk<T>;

  LinearDotArguments a;

  KFORMER_DEVICE void operator()() const {
    const std::int64_t col = static_cast<std::int64_t>(block_index()) * linear_dot_cols;
    const std::int64_t chunks = a.in / numbers;
    float sum[linear_dot_cols][rows] = {};
    std::int64_t chunk = thread_index();
    for (; chunk + (depth - 1) * threads < chunks; chunk += depth * threads) add<depth>(col, chunk, sum);
    for (; chunk < chunks; chunk += threads) add<1>(col, chunk, sum);
    store(col, sum);
  }

 private:
  template <int n>
  KFORMER_DEVICE void add(std::int64_t col, std::int64_t chunk, float (&sum)[linear_dot_cols][rows]) const {
    Chunk w[n][linear_dot_cols];
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < linear_dot_cols; ++c)
        w[i][c] = load_row_chunk<T>(a.weight, col + c < a.out ? col + c : a.out - 1, chunk + i * threads);
    }
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      float x[rows][numbers];
      KFORMER_DEVICE_UNROLL
      for (int r = 0; r < rows; ++r) widen<T>(load_row_chunk<T>(a.x, r, chunk + i * threads), x[r]);
      KFORMER_DEVICE_UNROLL
      for (int c = 0; c < linear_dot_cols; ++c) {
        float weight[numbers];
        widen<T>(w[i][c], weight);
        KFORMER_DEVICE_UNROLL
        for (int r = 0; r < rows; ++r) {
          KFORMER_DEVICE_UNROLL
          for (int j = 0; j < numbers; ++j) sum[c][r] = fused_multiply_add(weight[j], x[r][j], sum[c][r]);
        }
      }
    }
  }

  KFORMER_DEVICE static SharedAddress slot(int warp, int number) {
    return shared_begin() + 4 * static_cast<SharedAddress>(warp * sums + number);
  }
  /// Adds the lanes, then the warps.
  KFORMER_DEVICE void store(std::int64_t first, const float (&sum)[linear_dot_cols][rows]) const {
    KFORMER_DEVICE_UNROLL
    for (int c = 0; c < linear_dot_cols; ++c) {
      KFORMER_DEVICE_UNROLL
      for (int r = 0; r < rows; ++r) {
        const float all = over_warp(sum[c][r], Sum{});
        if (thread_index() % 32 == 0) store_shared(slot(thread_index() / 32, c * rows + r), all);
      }
    }
    block_barrier();
    const int number = thread_index();
    const std::int64_t row = number % rows, col = first + number / rows;
    if (number >= sums || col >= a.out) return;
    float all = load_shared<float>(slot(0, number));
    KFORMER_DEVICE_UNROLL
    for (int warp = 1; warp < warps; ++warp) all += load_shared<float>(slot(warp, number));
    all = rounded_product(a.scale, all);
    if (const auto* addend = static_cast<const T*>(a.addend.data))
      all += widened(addend[row * a.addend.stride + col]);
    narrow(all, static_cast<T*>(a.y.data)[row * a.y.stride + col]);
  }
};

}  // namespace kformer::Impl::cuda
