// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/backward.hpp"

/// \file
/// The tiles of backward. A tile of 64 rows and its partners fit the 99 KB of shared memory that a block may
/// have on compute capability 8.6, 8.9 and 12.0, up to 128 features twice.
///
/// | features | partners | bytes, keys own | bytes, queries own |
/// |---|---|---|---|
/// | 64 | 64 | 33280 | 32768 |
/// | 96 | 64 | 49664 | 49152 |
/// | 128 | 32 | 49408 | 49152 |
/// | 256 | 16 | 82048 (dk) | 81920 |
/// | 256, dv alone | 32, or 16 where a multiprocessor has 100 KB | 65792, 49280 | |

namespace kformer::Impl::cuda {

template <Half type_, int features_, Side side_, bool first_, bool second_, int warps_, int partners_,
          int blocks_per_multiprocessor_>
struct BackwardTiles {
  static constexpr Half type = type_;
  static constexpr int features = features_;  ///< of q, k and v, padded
  static constexpr Side side = side_;
  static constexpr bool first = first_;    ///< makes the gradient of q or k
  static constexpr bool second = second_;  ///< makes the gradient of v
  static constexpr int warps = warps_;
  static constexpr int partners = partners_;  ///< per pass
  static constexpr int blocks_per_multiprocessor = blocks_per_multiprocessor_;
  static constexpr int rows = 16 * warps;
  static_assert(side == Side::keys || !second);

  static constexpr bool runs_on(const Machine&) { return true; }
};

// Occupancy of BackwardKernel: registers limit it to two blocks. For dq and dk of 256 features shared memory
// limits it, to one block where a multiprocessor has 100 KB. A thread keeps the sums of one or two gradients in
// registers (32 to 128 of them) besides scores and their gradients, so that no sums go through memory and every
// gradient is written once. A third block would leave it 168 registers, which is too few. As in forward,
// independent products and the copies of the next partners hide latencies instead of more warps.
inline constexpr int backward_partners(int features) { return features <= 96 ? 64 : features <= 128 ? 32 : 16; }

template <Half type, int features, Side side, bool first, bool second>
using BackwardTable =
    BackwardTiles<type, features, side, first, second, 4, backward_partners(features), features <= 128 ? 2 : 1>;

/// The gradient of v by itself: as many partners as leave room for two blocks on a multiprocessor.
template <Half type, int features, SharedMemory memory>
struct ValueTable
    : BackwardTiles<type, features, Side::keys, false, true, 4, memory == SharedMemory::large ? 32 : 16, 2> {
  static constexpr bool runs_on(const Machine& m) { return shared_memory(m) == memory; }
};

template <class Tiles>
inline constexpr int backward_shared_bytes = BackwardKernel<Tiles>::shared_bytes;
static_assert(backward_shared_bytes<BackwardTable<Half::bf16, 64, Side::keys, true, true>> == 33280);
static_assert(backward_shared_bytes<BackwardTable<Half::bf16, 96, Side::keys, true, true>> == 49664);
static_assert(backward_shared_bytes<BackwardTable<Half::bf16, 128, Side::keys, true, true>> == 49408);
static_assert(backward_shared_bytes<BackwardTable<Half::bf16, 256, Side::keys, true, false>> == 82048);
static_assert(backward_shared_bytes<ValueTable<Half::bf16, 256, SharedMemory::large>> == 65792);
static_assert(backward_shared_bytes<ValueTable<Half::bf16, 256, SharedMemory::small>> == 49280);
static_assert(backward_shared_bytes<BackwardTable<Half::bf16, 256, Side::queries, true, false>> == 81920);

}  // namespace kformer::Impl::cuda
