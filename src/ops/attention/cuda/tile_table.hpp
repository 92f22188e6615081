// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/forward.hpp"

/// \file
/// The tiles of each kernel. Sizes follow from registers (255 per thread) and shared memory; see docs/gpu.md
/// for what the compiler makes of them.

namespace kformer::Impl::cuda {

// Occupancy of ForwardKernel: a thread holds its part of queries, scores and results in up to 255 registers, so
// that each number read from shared memory enters as many products as possible. Independent products and
// asynchronous copies keep the tensor cores busy instead of more warps. Smaller tiles would raise the occupancy
// and read shared memory more often.
template <Half type, int features>
struct ForwardTableOf;
template <Half type>
struct ForwardTableOf<type, 64> {
  using Tiles = ForwardTiles<type, 64, 4, 2, 64, true, 2>;
};
template <Half type>
struct ForwardTableOf<type, 96> {
  using Tiles = ForwardTiles<type, 96, 4, 1, 64, true, 2>;
};
template <Half type>
struct ForwardTableOf<type, 128> {
  using Tiles = ForwardTiles<type, 128, 4, 1, 64, true, 2>;
};
template <Half type>
struct ForwardTableOf<type, 256> {
  using Tiles = ForwardTiles<type, 256, 4, 1, 16, false, 1>;
};

template <Half type, int features>
using ForwardTable = typename ForwardTableOf<type, features>::Tiles;

}  // namespace kformer::Impl::cuda
