// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/cross_entropy.hpp"
#include "ops/common/simd_entries.hpp"
#include "ops/cross_entropy/host/arguments.hpp"

/// \file
/// The entries of host kernel lists that run SIMD kernels: whole rows in pieces, one thread each.

namespace kformer::Impl::host {

template <class Problem>
CrossEntropyArguments cross_entropy_arguments(const Problem& p) {
  CrossEntropyArguments a{};
  a.logits = p.logits.data;
  a.logits_stride = p.logits.stride[0];
  a.vocabulary = p.logits.extent[1];
  a.targets = static_cast<const std::int32_t*>(p.targets.data);
  a.lse = p.lse.data;
  a.ignore_index = p.options.ignore_index;
  a.label_smoothing = p.options.label_smoothing;
  a.z_loss = p.options.z_loss;
  a.softcap = p.options.softcap;
  return a;
}

template <class Exec, Isa isa>
struct CrossEntropyForwardEntry {
  using P = CrossEntropyForward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.logits.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    CrossEntropyArguments a = cross_entropy_arguments(p);
    a.loss = p.loss.data;
    for_each_piece("kformer::cross_entropy_forward[simd]", exec, p.logits.extent[0],
                   piece_of_rows(a.vocabulary),
                   [=, kernel = cross_entropy_kernels<built<isa>>(p.logits.dtype).forward](
                       std::int64_t begin, std::int64_t end) { kernel(a, begin, end); });
  }
};

template <class Exec, Isa isa>
struct CrossEntropyBackwardEntry {
  using P = CrossEntropyBackward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.logits.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    CrossEntropyArguments a = cross_entropy_arguments(p);
    a.dloss = p.dloss.data;
    a.dlogits = p.dlogits.data;
    a.dlogits_stride = p.dlogits.stride[0];
    for_each_piece("kformer::cross_entropy_backward[simd]", exec, p.logits.extent[0],
                   piece_of_rows(a.vocabulary),
                   [=, kernel = cross_entropy_kernels<built<isa>>(p.logits.dtype).backward](
                       std::int64_t begin, std::int64_t end) { kernel(a, begin, end); });
  }
};

}  // namespace kformer::Impl::host
