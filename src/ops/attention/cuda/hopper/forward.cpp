// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/hopper/forward.hpp"

#include <algorithm>

#include "ops/attention/cuda/hopper/arguments.hpp"

namespace kformer::Impl::cuda {

namespace {

template <Half type, int features>
void launch_forward(Stream stream, int multiprocessors, const AttentionArguments& a,
                    const AttentionShapes& shapes, const Sequences& sequences) {
  using Kernel = hopper::ForwardKernel<hopper::ForwardTiles<type, features>>;
  using Keys = typename Kernel::KeyRing::Tile;
  const std::int64_t tiles = most_tiles<Kernel::queries>(sequences) * a.q_heads;
  // The device alone knows the lengths of packed sequences: a block for each tile lets it even them out.
  const std::int64_t blocks =
      Kernel::several_tiles && !sequences.q_starts
          ? std::min<std::int64_t>(tiles, multiprocessors * Kernel::blocks_per_multiprocessor)
          : tiles;
  launch("kformer::attention_forward[cuda_wgmma]", stream, blocks,
         Kernel{a, sequences, Kernel::QueryPanels::template map<type>(shapes.q),
                Keys::template map<type>(shapes.k), Keys::template map<type>(shapes.v), static_cast<int>(tiles),
                static_cast<int>(blocks)});
}

}  // namespace

void attention_forward_wgmma(Stream stream, int multiprocessors, Half type, const AttentionArguments& a,
                             const AttentionShapes& shapes, const Sequences& sequences) {
  hopper::with_tiles(WarpgroupForwardFeatures(), type, a.head_dim, [&]<Half half, int features>() {
    launch_forward<half, features>(stream, multiprocessors, a, shapes, sequences);
  });
}

}  // namespace kformer::Impl::cuda
