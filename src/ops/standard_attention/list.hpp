// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/standard_attention/kokkos.hpp"
#include "ops/standard_attention/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<StandardAttentionForward, Exec> {
  using P = StandardAttentionForward;
  static KernelList<P, Exec> get() {
    static constexpr std::array<Kernel<P, Exec>, 2> all{{
        {"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry},
        {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
    }};
    return without_reference_on_device<Exec>(all);
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.q.dtype,
                   [&]<class T>(std::type_identity<T>) { standard_attention_forward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::standard_attention_forward[reference]", [p] {
        const auto r = reference::attention_forward<double, double>(
            read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
            {.bias = read_tensor<double>(p.mask)}, p.options);
        write_tensor(r.out, p.out);
        write_tensor(r.probabilities, p.probabilities);
      });
  }
};

template <class Exec>
struct List<StandardAttentionBackward, Exec> {
  using P = StandardAttentionBackward;
  static KernelList<P, Exec> get() {
    static constexpr std::array<Kernel<P, Exec>, 2> all{{
        {"kokkos", never_rejects<P>, standard_attention_backward_workspace, kokkos_entry},
        {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
    }};
    return without_reference_on_device<Exec>(all);
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace& workspace) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) {
      standard_attention_backward_kokkos<T>(exec, p, workspace);
    });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::standard_attention_backward[reference]", [p] {
        const auto r = reference::standard_attention_backward<double, double>(
            read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
            read_tensor<double>(p.probabilities), read_tensor<double>(p.dout), p.options);
        write_tensor(r.dq, p.dq);
        write_tensor(r.dk, p.dk);
        write_tensor(r.dv, p.dv);
      });
  }
};

}  // namespace kformer::Impl
