// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/hopper/forward.hpp"

#include "ops/attention/cuda/hopper/arguments.hpp"

namespace kformer::Impl::cuda {

namespace {

template <Half type, int features>
void launch_forward(Stream stream, const AttentionArguments& a, const AttentionShapes& shapes,
                    const Sequences& sequences) {
  using Kernel = hopper::ForwardKernel<hopper::ForwardTiles<type, features>>;
  using Keys = typename Kernel::KeyRing::Tile;
  launch("kformer::attention_forward[cuda_wgmma]", stream, most_tiles<Kernel::queries>(sequences) * a.q_heads,
         Kernel{a, sequences, Kernel::QueryPanels::template map<type>(shapes.q),
                Keys::template map<type>(shapes.k), Keys::template map<type>(shapes.v)});
}

}  // namespace

void attention_forward_wgmma(Stream stream, Half type, const AttentionArguments& a,
                             const AttentionShapes& shapes, const Sequences& sequences) {
  hopper::with_tiles(WarpgroupForwardFeatures(), type, a.head_dim, [&]<Half half, int features>() {
    launch_forward<half, features>(stream, a, shapes, sequences);
  });
}

}  // namespace kformer::Impl::cuda
