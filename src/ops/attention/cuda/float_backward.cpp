// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/float_backward.hpp"

#include "ops/attention/cuda/delta.hpp"

namespace kformer::Impl::cuda {

namespace {

template <int features, Side side>
void launch_side(Stream stream, const Machine& machine, const GradientArgumentsOf<float>& g,
                 const Sequences& sequences) {
  constexpr const char* label = "kformer::attention_backward[cuda_tf32x3]";
  if (shared_memory(machine) == SharedMemory::large)
    launch_backward<FloatBackwardKernel, FloatBackwardTiles<features, side, SharedMemory::large>>(label, stream,
                                                                                                  g, sequences);
  else
    launch_backward<FloatBackwardKernel, FloatBackwardTiles<features, side, SharedMemory::small>>(label, stream,
                                                                                                  g, sequences);
}

template <int features>
void launch_sides(Stream stream, const Machine& machine, const GradientArgumentsOf<float>& g,
                  const Sequences& sequences) {
  launch_side<features, Side::keys>(stream, machine, g, sequences);
  launch_side<features, Side::queries>(stream, machine, g, sequences);
}

}  // namespace

void attention_delta(Stream stream, const GradientArgumentsOf<float>& g, const Sequences& sequences) {
  launch_delta<float>(stream, g, sequences);
}

void attention_backward_tf32x3(Stream stream, const Machine& machine, const GradientArgumentsOf<float>& g,
                               const Sequences& sequences) {
  const int features = g.a.head_dim > g.a.v_head_dim ? g.a.head_dim : g.a.v_head_dim;
  if (features <= 64)
    launch_sides<64>(stream, machine, g, sequences);
  else if (features <= 96)
    launch_sides<96>(stream, machine, g, sequences);
  else
    launch_sides<128>(stream, machine, g, sequences);
}

}  // namespace kformer::Impl::cuda
