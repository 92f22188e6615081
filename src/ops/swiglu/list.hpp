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
    static constexpr Kernel<P, Exec> portable{"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry};
    if constexpr (is_host_space<Exec>) {
      static constexpr std::array<Kernel<P, Exec>, 6> all{{
          host::SwigluForwardEntry<Exec, host::Isa::avx512_bf16>::entry(),
          host::SwigluForwardEntry<Exec, host::Isa::avx512>::entry(),
          host::SwigluForwardEntry<Exec, host::Isa::avx2>::entry(),
          host::SwigluForwardEntry<Exec, host::Isa::generic>::entry(),
          portable,
          {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
      }};
      return all;
    } else {
      static constexpr std::array<Kernel<P, Exec>, 1> all{portable};
      return all;
    }
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
    static constexpr Kernel<P, Exec> portable{"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry};
    if constexpr (is_host_space<Exec>) {
      static constexpr std::array<Kernel<P, Exec>, 6> all{{
          host::SwigluBackwardEntry<Exec, host::Isa::avx512_bf16>::entry(),
          host::SwigluBackwardEntry<Exec, host::Isa::avx512>::entry(),
          host::SwigluBackwardEntry<Exec, host::Isa::avx2>::entry(),
          host::SwigluBackwardEntry<Exec, host::Isa::generic>::entry(),
          portable,
          {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
      }};
      return all;
    } else {
      static constexpr std::array<Kernel<P, Exec>, 1> all{portable};
      return all;
    }
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
