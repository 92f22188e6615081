// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/cross_entropy/host/entries.hpp"
#include "ops/cross_entropy/kokkos.hpp"
#include "ops/cross_entropy/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<CrossEntropyForward, Exec> {
  using P = CrossEntropyForward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>,
                     host::CrossEntropyForwardEntry<Exec, host::Isa::avx512_bf16>,
                     host::CrossEntropyForwardEntry<Exec, host::Isa::avx512>,
                     host::CrossEntropyForwardEntry<Exec, host::Isa::avx2>,
                     host::CrossEntropyForwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.logits.dtype, [&]<class T>(std::type_identity<T>) {
      with_soft_cap<compute_t<T>>(p.options.softcap,
                                  [&](const auto& cap) { cross_entropy_forward_kokkos<T>(exec, p, cap); });
    });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::cross_entropy_forward[reference]", [p] {
        const auto r = reference::cross_entropy_forward<double>(read_tensor<double>(p.logits),
                                                                read_tensor<double>(p.targets), p.options);
        write_tensor(r.loss, p.loss);
        write_tensor(r.lse, p.lse);
      });
  }
};

template <class Exec>
struct List<CrossEntropyBackward, Exec> {
  using P = CrossEntropyBackward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>,
                     host::CrossEntropyBackwardEntry<Exec, host::Isa::avx512_bf16>,
                     host::CrossEntropyBackwardEntry<Exec, host::Isa::avx512>,
                     host::CrossEntropyBackwardEntry<Exec, host::Isa::avx2>,
                     host::CrossEntropyBackwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.logits.dtype, [&]<class T>(std::type_identity<T>) {
      with_soft_cap<compute_t<T>>(p.options.softcap,
                                  [&](const auto& cap) { cross_entropy_backward_kokkos<T>(exec, p, cap); });
    });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::cross_entropy_backward[reference]", [p] {
        write_tensor(reference::cross_entropy_backward<double, double>(
                         read_tensor<double>(p.logits), read_tensor<double>(p.targets),
                         read_tensor<double>(p.lse), read_tensor<double>(p.dloss), p.options),
                     p.dlogits);
      });
  }
};

}  // namespace kformer::Impl
