// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/hopper/backward.hpp"

#include "ops/attention/cuda/hopper/arguments.hpp"

namespace kformer::Impl::cuda {

namespace {

template <Half type, int features, Side side>
void launch_side(Stream stream, const GradientArguments& g, const GradientShapes& shapes,
                 const Sequences& sequences) {
  using Kernel = hopper::BackwardKernel<hopper::BackwardTiles<type, features, side>>;
  constexpr bool of_keys = side == Side::keys;
  using Own = typename Kernel::OwnTile;
  using Partner = typename Kernel::PartnerRing::Tile;
  const TensorShape &own_first = of_keys ? shapes.k : shapes.q, &own_second = of_keys ? shapes.v : shapes.dout,
                    &partner_first = of_keys ? shapes.q : shapes.k,
                    &partner_second = of_keys ? shapes.dout : shapes.v;
  const Sequences owned = owned_first<side>(sequences);
  launch("kformer::attention_backward[cuda_wgmma]", stream,
         most_tiles<Kernel::rows>(owned) * (of_keys ? g.kv_heads : g.a.q_heads),
         Kernel{g, owned, Own::template map<type>(own_first), Own::template map<type>(own_second),
                Partner::template map<type>(partner_first), Partner::template map<type>(partner_second)});
}

template <Half type, int features>
void launch_sides(Stream stream, const GradientArguments& g, const GradientShapes& shapes,
                  const Sequences& sequences) {
  launch_side<type, features, Side::keys>(stream, g, shapes, sequences);
  launch_side<type, features, Side::queries>(stream, g, shapes, sequences);
}

}  // namespace

void attention_backward_wgmma(Stream stream, Half type, const GradientArguments& g,
                              const GradientShapes& shapes, const Sequences& sequences) {
  hopper::with_tiles(WarpgroupBackwardFeatures(), type, g.a.head_dim, [&]<Half half, int features>() {
    launch_sides<half, features>(stream, g, shapes, sequences);
  });
}

}  // namespace kformer::Impl::cuda
