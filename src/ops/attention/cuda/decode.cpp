// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/decode.hpp"

#include "ops/attention/cuda/tile_table.hpp"

namespace kformer::Impl::cuda {

namespace {

template <class Tiles>
void launch_parts(Stream stream, const AttentionArguments& a, const Sequences& sequences,
                  const Partials& partials) {
  const std::int64_t tiles = most_tiles(sequences, Tiles::rows / a.group);
  launch("kformer::attention_forward_part[cuda_decode]", stream, tiles * (a.q_heads / a.group) * partials.parts,
         DecodeKernel<Tiles>{a, sequences, partials});
}

}  // namespace

void attention_decode(Stream stream, Half type, const AttentionArguments& a, const Sequences& sequences,
                      const Partials& partials, int rows) {
  if (partials.rows == 0) return;
  const int features = a.head_dim > a.v_head_dim ? a.head_dim : a.v_head_dim;
  with_half(type, [&]<Half half>() {
    const auto with_tiles = [&]<class Few, class Many>() {
      if (rows == Few::rows)
        launch_parts<Few>(stream, a, sequences, partials);
      else
        launch_parts<Many>(stream, a, sequences, partials);
    };
    if (features <= 64)
      with_tiles.template operator()<DecodeTiles<half, 64, 1, 4, 64>, DecodeTiles<half, 64, 4, 4, 64>>();
    else if (features <= 128)
      with_tiles.template operator()<DecodeTiles<half, 128, 1, 4, 64>, DecodeTiles<half, 128, 4, 4, 64>>();
    else
      with_tiles.template operator()<DecodeTiles<half, 256, 1, 2, 32>, DecodeTiles<half, 256, 4, 4, 16>>();
    launch("kformer::attention_forward_combine[cuda_decode]", stream, partials.rows,
           CombineKernel<half>{a, sequences, partials});
  });
}

}  // namespace kformer::Impl::cuda
