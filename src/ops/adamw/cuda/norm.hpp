// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/cuda/arguments.hpp"

/// \file
/// The norm of gradients: the sum of squares of each piece in double, and the root of their sum.

namespace kformer::Impl::cuda {

/// Sums of the threads of a block, in a fixed order; of thread 0 alone.
struct BlockSum {
  static constexpr int threads = adamw_threads, warps = threads / 32;
  static constexpr int shared_bytes = warps * static_cast<int>(sizeof(double));

  KFORMER_DEVICE static double of(double mine) {
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += shuffle_xor(mine, lanes);
    if (thread_index() % 32 == 0) store_shared(place(thread_index() / 32), mine);
    block_barrier();
    double sum = 0;
    if (thread_index() == 0)
      for (int warp = 0; warp < warps; ++warp) sum += load_shared<double>(place(warp));
    return sum;
  }

 private:
  KFORMER_DEVICE static SharedAddress place(int warp) {
    return shared_begin() + static_cast<SharedAddress>(warp) * sizeof(double);
  }
};

// Occupancy of GradientSquaresKernel: registers limit it to four blocks of doubles, because they hold the
// numbers of several loads at once. With only three loads of 16 bytes per thread 48 KB are in flight. A
// multiprocessor's share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per microsecond, and a
// latency is shorter.
template <class C>
struct GradientSquaresKernel {
  static constexpr int threads = BlockSum::threads, blocks_per_multiprocessor = 4,
                       shared_bytes = BlockSum::shared_bytes;
  static constexpr int elements = per_chunk<C>;

  AdamWPieces pieces;
  double* sums;

  KFORMER_DEVICE void operator()() const {
    const AdamWPiece piece = piece_of(pieces, block_index());
    const C* gradient = static_cast<const C*>(pieces.items[piece.item].gradient);
    std::int64_t in_chunks = piece.begin;
    double sum = 0;
    if (reinterpret_cast<std::uintptr_t>(gradient) % 16 == 0) {
      in_chunks += (piece.end - piece.begin) / elements * elements;
      KFORMER_DEVICE_UNROLL
      for (int step = 0; step < adamw_piece_elements / (threads * elements); ++step) {
        const std::int64_t i = piece.begin + (step * threads + thread_index()) * elements;
        if (i < in_chunks) {
          C g[elements];
          load_numbers(gradient + i, g);
          KFORMER_DEVICE_UNROLL
          for (int k = 0; k < elements; ++k) sum += square(g[k]);
        }
      }
    }
    for (std::int64_t i = in_chunks + thread_index(); i < piece.end; i += threads) sum += square(gradient[i]);
    sum = BlockSum::of(sum);
    if (thread_index() == 0) sums[block_index()] = sum;
  }

 private:
  KFORMER_DEVICE static double square(C x) { return static_cast<double>(x) * static_cast<double>(x); }
};

template <class C>
struct GradientRootKernel {
  static constexpr int threads = BlockSum::threads, blocks_per_multiprocessor = 1,
                       shared_bytes = BlockSum::shared_bytes;

  const double* sums;
  std::int64_t count;
  C* norm;

  KFORMER_DEVICE void operator()() const {
    double sum = 0;
    for (std::int64_t i = thread_index(); i < count; i += threads) sum += sums[i];
    sum = BlockSum::of(sum);
    if (thread_index() == 0) *norm = static_cast<C>(square_root(sum));
  }
};

}  // namespace kformer::Impl::cuda
