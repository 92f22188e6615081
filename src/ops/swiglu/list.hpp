// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/swiglu/host/entries.hpp"
#include "ops/swiglu/kokkos.hpp"
#include "ops/swiglu/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<SwigluForward, Exec> {
  using P = SwigluForward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>, host::SwigluForwardEntry<Exec, host::Isa::avx512_bf16>,
                     host::SwigluForwardEntry<Exec, host::Isa::avx512>,
                     host::SwigluForwardEntry<Exec, host::Isa::avx2>,
                     host::SwigluForwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.gate.dtype, [&]<class T>(std::type_identity<T>) { swiglu_forward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::swiglu_forward[reference]", [p] {
        write_tensor(
            reference::swiglu_forward<double, double>(read_tensor<double>(p.gate), read_tensor<double>(p.up)),
            p.y);
      });
  }
};

template <class Exec>
struct List<SwigluBackward, Exec> {
  using P = SwigluBackward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>, host::SwigluBackwardEntry<Exec, host::Isa::avx512_bf16>,
                     host::SwigluBackwardEntry<Exec, host::Isa::avx512>,
                     host::SwigluBackwardEntry<Exec, host::Isa::avx2>,
                     host::SwigluBackwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.gate.dtype, [&]<class T>(std::type_identity<T>) { swiglu_backward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::swiglu_backward[reference]", [p] {
        const auto r = reference::swiglu_backward<double, double>(
            read_tensor<double>(p.gate), read_tensor<double>(p.up), read_tensor<double>(p.dy));
        write_tensor(r.dgate, p.dgate);
        write_tensor(r.dup, p.dup);
      });
  }
};

}  // namespace kformer::Impl
