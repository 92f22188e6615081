// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/float_forward.hpp"

namespace kformer::Impl::cuda {

namespace {

template <class Tiles>
void launch_tiles(Stream stream, const AttentionArgumentsOf<float>& a, const Sequences& sequences) {
  launch("kformer::attention_forward[cuda_tf32x3]", stream, most_tiles<Tiles::queries>(sequences) * a.q_heads,
         FloatForwardKernel<Tiles>{a, sequences});
}

}  // namespace

void attention_forward_tf32x3(Stream stream, const AttentionArgumentsOf<float>& a, const Sequences& sequences) {
  const int features = a.head_dim > a.v_head_dim ? a.head_dim : a.v_head_dim;
  if (features <= 64)
    launch_tiles<FloatForwardTiles<64>>(stream, a, sequences);
  else if (features <= 96)
    launch_tiles<FloatForwardTiles<96>>(stream, a, sequences);
  else
    launch_tiles<FloatForwardTiles<128>>(stream, a, sequences);
}

}  // namespace kformer::Impl::cuda
