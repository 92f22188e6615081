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
  const auto map = [](const TensorShape& shape, int rows) { return hopper::tile_map<type>(shape, rows); };
  const TensorShape &own_first = of_keys ? shapes.k : shapes.q, &own_second = of_keys ? shapes.v : shapes.dout,
                    &partner_first = of_keys ? shapes.q : shapes.k,
                    &partner_second = of_keys ? shapes.dout : shapes.v;
  const Sequences owned = owned_first<side>(sequences);
  launch("kformer::attention_backward[cuda_wgmma]", stream,
         most_tiles<Kernel::rows>(owned) * (of_keys ? g.kv_heads : g.a.q_heads),
         Kernel{g, owned, map(own_first, Kernel::rows), map(own_second, Kernel::rows),
                map(partner_first, Kernel::partners), map(partner_second, Kernel::partners)});
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
  hopper::with_tiles(type, g.a.head_dim, [&]<Half half, int features>() {
    launch_sides<half, features>(stream, g, shapes, sequences);
  });
}

}  // namespace kformer::Impl::cuda
