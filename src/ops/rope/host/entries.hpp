// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/rope.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/simd_entries.hpp"
#include "ops/rope/host/arguments.hpp"

/// \file
/// The entries of host kernel lists that run SIMD kernels.

namespace kformer::Impl::host {

inline RopeHeads rope_heads(const TensorRef& x) {
  return {x.data, x.stride[0], x.stride[1], x.stride[2], x.extent[2]};
}

inline RopeArguments rope_arguments(const RopeRotation& p, int direction) {
  const bool one_batch = p.positions.present() && p.positions.extent[0] == 1;
  return {rope_heads(p.q),
          rope_heads(p.k),
          input_rows(p.cos),
          input_rows(p.sin),
          p.cos.extent[0],
          p.q.extent[3] / 2,
          p.q.extent[1],
          static_cast<const std::int32_t*>(p.positions.data),
          one_batch ? 0 : p.positions.stride[0],
          p.first_position,
          direction};
}

/// The two directions differ by a sign.
template <class P, class Exec, Isa isa, int direction>
struct RopeRotationEntry {
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.q.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const RopeArguments a = rope_arguments(p, direction);
    const RopeKernels& kernels = rope_kernels<built<isa>>(p.q.dtype);
    for_each_piece(direction > 0 ? "kformer::rope_forward[simd]" : "kformer::rope_backward[simd]", exec,
                   p.q.extent[0] * a.seq, piece_of_rows((a.q.heads + a.k.heads) * p.q.extent[3]),
                   [=, run = p.layout == RopeLayout::half_split ? kernels.half_split : kernels.interleaved](
                       std::int64_t first_token, std::int64_t end) { run(a, first_token, end); });
  }
};

template <class Exec, Isa isa>
using RopeForwardEntry = RopeRotationEntry<RopeForward, Exec, isa, +1>;
template <class Exec, Isa isa>
using RopeBackwardEntry = RopeRotationEntry<RopeBackward, Exec, isa, -1>;

}  // namespace kformer::Impl::host
