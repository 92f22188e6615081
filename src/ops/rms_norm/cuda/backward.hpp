// SPDX-License-Identifier: MIT
#pragma once

#include "ops/rms_norm/cuda/arguments.hpp"

/// \file
/// RMSNorm backward: rows pass by once. A block has neighbouring rows, and keeps its share of the weight
/// gradient in registers.

namespace kformer::Impl::cuda {

// Occupancy of RmsNormBackwardKernel: registers limit it: a thread keeps the weight gradient of its columns
// over all rows of the block, 8 to 32 numbers, and each row between its dot product and its gradient. So memory
// is read once, and a block writes one row of sums. All loads of a row are in flight at once: 48 KB and more
// per multiprocessor of 9.0, where the share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per
// microsecond, and a latency is shorter. A block of long rows has the multiprocessor to itself and has nothing
// in flight while it sums: the price of keeping long rows in registers.
template <class T, class Shape, bool fused>
struct RmsNormBackwardKernel {
  static constexpr int threads = Shape::threads, blocks_per_multiprocessor = 512 / threads;
  static constexpr int n = per_chunk<T>;
  static constexpr int slot_bytes = 4 * Shape::warps;
  static constexpr int shared_bytes = Shape::warps > 1 ? 2 * slot_bytes : 4 * n* Shape::most_chunks;

  RmsNormBackwardArguments a;

  KFORMER_DEVICE void operator()() const {
    const std::int64_t first = block_index() * a.rows_per_block;
    const std::int64_t end = first + a.rows_per_block < a.rows ? first + a.rows_per_block : a.rows;
    float gradient[Shape::chunks][n] = {};
    for (std::int64_t row = first + Shape::row(); row < end; row += Shape::rows) pass(row, gradient);
    store_partial(gradient);
  }

 private:
  KFORMER_DEVICE bool has(int j) const { return Shape::chunk(j) < a.hidden / n; }
  KFORMER_DEVICE Chunk load(const host::InputRows& x, std::int64_t row, int j) const {
    return has(j) ? load_row_chunk<T>(x, row, Shape::chunk(j)) : Chunk{};
  }

  /// Both passes load it from the caches: there are too few registers to keep it.
  KFORMER_DEVICE void load_weight(int j, float (&w)[n]) const { widen<T>(load({a.weight, 0}, 0, j), w); }

  KFORMER_DEVICE void pass(std::int64_t row, float (&gradient)[Shape::chunks][n]) const {
    Chunk x[Shape::chunks], dy[Shape::chunks], dsum[Shape::chunks];
    KFORMER_DEVICE_UNROLL
    for (int j = 0; j < Shape::chunks; ++j) {
      x[j] = load(a.x, row, j);
      dy[j] = load(a.dy, row, j);
      if constexpr (fused) dsum[j] = load(a.dsum, row, j);
    }
    const float scale = static_cast<const float*>(a.rstd)[row];
    float dot = 0;
    KFORMER_DEVICE_UNROLL
    for (int j = 0; j < Shape::chunks; ++j) {
      float value[n], g[n], w[n];
      widen<T>(x[j], value), widen<T>(dy[j], g), load_weight(j, w);
      KFORMER_DEVICE_UNROLL
      for (int i = 0; i < n; ++i) dot += g[i] * w[i] * (value[i] * scale);
    }
    // Two sets of slots: threads that reach the next row do not overwrite what others still read.
    const SharedAddress slots = shared_begin() + static_cast<SharedAddress>(row % 2 * slot_bytes);
    const float mean = over_row<Shape::warps>(dot, Sum{}, slots) / static_cast<float>(a.hidden);
    KFORMER_DEVICE_UNROLL
    for (int j = 0; j < Shape::chunks; ++j) {
      float value[n], g[n], w[n], through[n];
      // Unpacked again: all numbers of the row, kept from the dot product, would not leave room for the rest.
      widen<T>(opaque(x[j]), value), widen<T>(opaque(dy[j]), g), load_weight(j, w);
      if constexpr (fused) widen<T>(dsum[j], through);
      KFORMER_DEVICE_UNROLL
      for (int i = 0; i < n; ++i) {
        const float xhat = value[i] * scale;
        // g · weight rounded as in the dot product, so that the two cancel where they must.
        const float mine = scale * fused_multiply_add(-xhat, mean, g[i] * w[i]);
        through[i] = fused ? through[i] + mine : mine;
        gradient[j][i] += g[i] * xhat;
      }
      if (has(j)) store_row_chunk<T>(a.dx, row, Shape::chunk(j), narrowed<T>(through));
    }
  }

  /// Adds the rows of the block in their order, and writes its share of the weight gradient.
  KFORMER_DEVICE void store_partial(float (&gradient)[Shape::chunks][n]) const {
    for (int row = 0; row < Shape::rows; ++row) {
      const bool is_first = row == 0, is_last = row == Shape::rows - 1;
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < Shape::chunks; ++j)
        if (row == Shape::row() && has(j)) add_partial(Shape::chunk(j) * n, gradient[j], is_first, is_last);
      if (!is_last) block_barrier();
    }
  }
  KFORMER_DEVICE void add_partial(int column, float (&gradient)[n], bool is_first, bool is_last) const {
    const SharedAddress place = shared_begin() + static_cast<SharedAddress>(4 * column);
    float* const to = static_cast<float*>(a.partial) + block_index() * a.hidden + column;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; i += 4) {
      float part[4];
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < 4; ++k) {
        const SharedAddress at = place + static_cast<SharedAddress>(4 * (i + k));
        part[k] = is_first ? gradient[i + k] : load_shared<float>(at) + gradient[i + k];
        if (!is_last) store_shared(at, part[k]);
      }
      if (is_last) store_words(to + i, narrowed<float>(part));
    }
  }
};

/// dweight += Σ_blocks partial, in a fixed order: a thread has four columns and every `slices`-th block, and
/// the slices are added in their order.
// Occupancy of RmsNormWeightKernel: registers limit it to four blocks, but the launch has one per 32
// columns: for 4096 features 128 blocks, about one for each multiprocessor of an H100.
struct RmsNormWeightKernel {
  static constexpr int chunks = 8, slices = 32;  // 128 bytes of each row of partial sums
  static constexpr int threads = chunks * slices, blocks_per_multiprocessor = 4;
  static constexpr int columns = chunks * per_chunk<float>;
  static constexpr int shared_bytes = 16 * threads;

  RmsNormBackwardArguments a;

  KFORMER_DEVICE void operator()() const {
    const int chunk = thread_index() % chunks, slice = thread_index() / chunks;
    const std::int64_t column = static_cast<std::int64_t>(block_index()) * columns + 4 * chunk;
    float sum[4] = {};
    if (column < a.hidden) {
      for (std::int64_t block = slice; block < a.blocks; block += slices)
        add(sum, load_words<4>(static_cast<const float*>(a.partial) + block * a.hidden + column));
    }
    store_shared(shared_begin() + static_cast<SharedAddress>(16 * thread_index()), narrowed<float>(sum));
    block_barrier();
    if (slice > 0 || column >= a.hidden) return;
    for (int other = 1; other < slices; ++other)
      add(sum, load_shared<Chunk>(shared_begin() + static_cast<SharedAddress>(16 * (other * chunks + chunk))));
    float* const to = static_cast<float*>(a.dweight) + column;
    float total[4];
    widen<float>(load_words<4>(to), total);
    add(total, narrowed<float>(sum));
    store_words(to, narrowed<float>(total));
  }

 private:
  KFORMER_DEVICE static void add(float (&sum)[4], const Chunk& chunk) {
    float x[4];
    widen<float>(chunk, x);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) sum[i] += x[i];
  }
};

}  // namespace kformer::Impl::cuda
