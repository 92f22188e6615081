// SPDX-License-Identifier: MIT
#include "ops/attention/cuda/backward.hpp"

#include "ops/attention/cuda/backward_table.hpp"
#include "ops/attention/cuda/delta.hpp"

namespace kformer::Impl::cuda {

namespace {

constexpr const char* label = "kformer::attention_backward[cuda_mma]";

template <Half type, int features, Side side, bool first, bool second>
void launch_side(Stream stream, const Machine& machine, const GradientArguments& g,
                 const Sequences& sequences) {
  if (shared_memory(machine) == SharedMemory::large)
    launch_backward<BackwardKernel, BackwardTable<type, features, side, first, second, SharedMemory::large>>(
        label, stream, g, sequences);
  else
    launch_backward<BackwardKernel, BackwardTable<type, features, side, first, second, SharedMemory::small>>(
        label, stream, g, sequences);
}

template <Half type, int features>
void launch_sides(Stream stream, const Machine& machine, const GradientArguments& g,
                  const Sequences& sequences) {
  if constexpr (features <= 128) {
    launch_side<type, features, Side::keys, true, true>(stream, machine, g, sequences);
  } else {
    // The sums of both gradients would not fit the registers.
    launch_side<type, features, Side::keys, true, false>(stream, machine, g, sequences);
    launch_side<type, features, Side::keys, false, true>(stream, machine, g, sequences);
  }
  launch_side<type, features, Side::queries, true, false>(stream, machine, g, sequences);
}

}  // namespace

void attention_delta(Stream stream, Half type, const GradientArguments& g, const Sequences& sequences) {
  with_half(type, [&]<Half half>() {
    launch_delta<std::conditional_t<half == Half::bf16, Bf16, F16>>(stream, g, sequences);
  });
}

void attention_backward(Stream stream, const Machine& machine, Half type, const GradientArguments& g,
                        const Sequences& sequences) {
  const int features = g.a.head_dim > g.a.v_head_dim ? g.a.head_dim : g.a.v_head_dim;
  with_half(type, [&]<Half half>() {
    if (features <= 64)
      launch_sides<half, 64>(stream, machine, g, sequences);
    else if (features <= 96)
      launch_sides<half, 96>(stream, machine, g, sequences);
    else if (features <= 128)
      launch_sides<half, 128>(stream, machine, g, sequences);
    else
      launch_sides<half, 256>(stream, machine, g, sequences);
  });
}

}  // namespace kformer::Impl::cuda
