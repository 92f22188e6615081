// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/swiglu.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/simd_entries.hpp"
#include "ops/swiglu/host/arguments.hpp"

/// \file
/// The entries of host kernel lists that run SIMD kernels.

namespace kformer::Impl::host {

template <class Exec, Isa isa>
struct SwigluForwardEntry {
  using P = SwigluForward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.gate.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const bool streams = exceeds_caches(3 * bytes_of(p.gate));
    const SwigluForwardArguments a{input_rows(p.gate), input_rows(p.up),
                                   output_rows(p.y, streams, {p.gate, p.up})};
    for_each_block(
        "kformer::swiglu_forward[simd]", exec, p.gate.extent[0], p.gate.extent[1],
        [a, run = swiglu_kernels<built<isa>>(p.gate.dtype).forward](const Block& block) { run(a, block); });
  }
};

template <class Exec, Isa isa>
struct SwigluBackwardEntry {
  using P = SwigluBackward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.gate.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const bool streams = exceeds_caches(5 * bytes_of(p.gate));
    const SwigluBackwardArguments a{input_rows(p.gate), input_rows(p.up), input_rows(p.dy),
                                    output_rows(p.dgate, streams, {p.gate, p.up, p.dy}),
                                    output_rows(p.dup, streams, {p.gate, p.up, p.dy})};
    for_each_block(
        "kformer::swiglu_backward[simd]", exec, p.gate.extent[0], p.gate.extent[1],
        [a, run = swiglu_kernels<built<isa>>(p.gate.dtype).backward](const Block& block) { run(a, block); });
  }
};

}  // namespace kformer::Impl::host
