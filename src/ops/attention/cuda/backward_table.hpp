// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/backward.hpp"

/// \file
/// The tiles of backward, by what fits 255 registers per thread and the shared memory of a multiprocessor. With
/// 32 rows per warp the sums of both gradients fit up to 64 features, and of one gradient up to 128. On
/// capability 8.6, 8.9 and 12.0 shared memory holds the owned tokens of eight such warps up to 64 features.
///
/// | features | makes | memory | warps | rows per warp | partners | bytes |
/// |---|---|---|---|---|---|---|
/// | 64 | dk and dv | any | 4 | 32 | 32 | 49664 |
/// | 64 | dq | any | 4 | 32 | 32 | 50176 |
/// | 96 | dk and dv | any | 4 | 16 | 32 | 49664 |
/// | 96 | dq | small, large | 4 | 16, 32 | 32 | 49664, 74752 |
/// | 128 | dk and dv | any | 8 | 16 | 32 | 98816 |
/// | 128 | dq | small, large | 8 | 16, 32 | 32 | 99328, 165888 |
/// | 256 | dk | small, large | 4, 8 | 16 | 16 | 98560, 164096 |
/// | 256 | dv | small, large | 8 | 16 | 16, 32 | 98560, 131584 |
/// | 256 | dq | small, large | 4, 8 | 16 | 16 | 98816, 164864 |

namespace kformer::Impl::cuda {

template <Half type_, int features_, Side side_, bool first_, bool second_, int warps_, int row_tiles_,
          int partners_, SharedMemory memory_, int blocks_per_multiprocessor_>
struct BackwardTiles {
  static constexpr Half type = type_;
  static constexpr int features = features_;  ///< of q, k and v, padded
  static constexpr Side side = side_;
  static constexpr bool first = first_;    ///< makes the gradient of q or k
  static constexpr bool second = second_;  ///< makes the gradient of v
  static constexpr int warps = warps_;
  static constexpr int row_tiles = row_tiles_;  ///< of 16 rows, per warp
  static constexpr int partners = partners_;    ///< per pass
  static constexpr int blocks_per_multiprocessor = blocks_per_multiprocessor_;
  static constexpr int rows = 16 * warps * row_tiles;
  static_assert(side == Side::keys || !second);

  static constexpr bool runs_on(const Machine& m) { return runs_with(memory_, m); }
};

// Occupancy of BackwardKernel: registers or shared memory limit it to eight warps. A thread keeps the sums of one or two
// gradients in registers (48 to 128 of them) besides scores and their gradients, so that no sums go through
// memory and every gradient is written once. For dq and dk of 256 features shared memory limits it to four where
// a multiprocessor has 100 KB. As in forward, independent products and the copies of the next partners hide
// latencies instead of more warps.
constexpr BackwardShape backward_shape(int features, Side side, bool first, SharedMemory memory) {
  const bool large = memory == SharedMemory::large;
  const int row_tiles_of_queries = side == Side::queries && large ? 2 : 1;
  if (features <= 64) return {4, 2, 32, 2};
  if (features <= 96) return {4, row_tiles_of_queries, 32, 2};
  if (features <= 128) return {8, row_tiles_of_queries, 32, 1};
  if (first) return {large ? 8 : 4, 1, 16, 1};
  return {8, 1, large ? 32 : 16, 1};
}

template <Half type, int features, Side side, bool first, bool second, SharedMemory memory>
struct BackwardTableOf {
  static constexpr BackwardShape shape = backward_shape(features, side, first, memory);
  static constexpr bool everywhere = shape == backward_shape(features, side, first, SharedMemory::small);
  using Tiles = BackwardTiles<type, features, side, first, second, shape.warps, shape.row_tiles, shape.partners,
                              everywhere ? SharedMemory::small : memory, shape.blocks_per_multiprocessor>;
};
template <Half type, int features, Side side, bool first, bool second, SharedMemory memory>
using BackwardTable = typename BackwardTableOf<type, features, side, first, second, memory>::Tiles;

template <int features, Side side, bool first, bool second, SharedMemory memory>
inline constexpr int backward_shared_bytes =
    BackwardKernel<BackwardTable<Half::bf16, features, side, first, second, memory>>::shared_bytes;
static_assert(backward_shared_bytes<64, Side::keys, true, true, SharedMemory::small> == 49664);
static_assert(backward_shared_bytes<64, Side::queries, true, false, SharedMemory::small> == 50176);
static_assert(backward_shared_bytes<96, Side::keys, true, true, SharedMemory::small> == 49664);
static_assert(backward_shared_bytes<96, Side::queries, true, false, SharedMemory::small> == 49664);
static_assert(backward_shared_bytes<96, Side::queries, true, false, SharedMemory::large> == 74752);
static_assert(backward_shared_bytes<128, Side::keys, true, true, SharedMemory::small> == 98816);
static_assert(backward_shared_bytes<128, Side::queries, true, false, SharedMemory::small> == 99328);
static_assert(backward_shared_bytes<128, Side::queries, true, false, SharedMemory::large> == 165888);
static_assert(backward_shared_bytes<256, Side::keys, true, false, SharedMemory::small> == 98560);
static_assert(backward_shared_bytes<256, Side::keys, true, false, SharedMemory::large> == 164096);
static_assert(backward_shared_bytes<256, Side::keys, false, true, SharedMemory::small> == 98560);
static_assert(backward_shared_bytes<256, Side::keys, false, true, SharedMemory::large> == 131584);
static_assert(backward_shared_bytes<256, Side::queries, true, false, SharedMemory::small> == 98816);
static_assert(backward_shared_bytes<256, Side::queries, true, false, SharedMemory::large> == 164864);

}  // namespace kformer::Impl::cuda
