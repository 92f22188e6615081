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
    static constexpr Kernel<P, Exec> portable{"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry};
    if constexpr (is_host_space<Exec>) {
      static constexpr std::array<Kernel<P, Exec>, 5> all{{
          host::CrossEntropyForwardEntry<Exec, host::Isa::avx512>::entry(),
          host::CrossEntropyForwardEntry<Exec, host::Isa::avx2>::entry(),
          host::CrossEntropyForwardEntry<Exec, host::Isa::generic>::entry(),
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
    static constexpr Kernel<P, Exec> portable{"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry};
    if constexpr (is_host_space<Exec>) {
      static constexpr std::array<Kernel<P, Exec>, 5> all{{
          host::CrossEntropyBackwardEntry<Exec, host::Isa::avx512>::entry(),
          host::CrossEntropyBackwardEntry<Exec, host::Isa::avx2>::entry(),
          host::CrossEntropyBackwardEntry<Exec, host::Isa::generic>::entry(),
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
