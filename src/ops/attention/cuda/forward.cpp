// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/forward.hpp"

#include "ops/attention/cuda/tile_table.hpp"

namespace kformer::Impl::cuda {

namespace {

template <class Tiles>
void launch_tiles(Stream stream, const AttentionArguments& a, const Sequences& sequences) {
  launch("kformer::attention_forward[cuda_mma]", stream, most_tiles<Tiles::queries>(sequences) * a.q_heads,
         ForwardKernel<Tiles>{a, sequences});
}

}  // namespace

void attention_forward(Stream stream, Half type, const AttentionArguments& a, const Sequences& sequences) {
  const int features = a.head_dim > a.v_head_dim ? a.head_dim : a.v_head_dim;
  with_half(type, [&]<Half half>() {
    if (features <= 64)
      launch_tiles<ForwardTable<half, 64>>(stream, a, sequences);
    else if (features <= 96)
      launch_tiles<ForwardTable<half, 96>>(stream, a, sequences);
    else if (features <= 128)
      launch_tiles<ForwardTable<half, 128>>(stream, a, sequences);
    else
      launch_tiles<ForwardTable<half, 256>>(stream, a, sequences);
  });
}

}  // namespace kformer::Impl::cuda
