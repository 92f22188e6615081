// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/flash_backward.hpp"
#include "kformer/ops/impl/flash_forward.hpp"
#include "ops/attention/host/entries.hpp"
#include "ops/attention/reference.hpp"
#include "ops/common/list.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<AttentionForward, Exec> {
  using P = AttentionForward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>, host::DecodeEntry<Exec, host::Isa::avx512_bf16>,
                     host::DecodeEntry<Exec, host::Isa::avx512>, host::DecodeEntry<Exec, host::Isa::avx2>,
                     host::DecodeEntry<Exec, host::Isa::generic>,
                     host::ForwardEntry<Exec, host::Isa::avx512_bf16>,
                     host::ForwardEntry<Exec, host::Isa::avx512>, host::ForwardEntry<Exec, host::Isa::avx2>,
                     host::ForwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) { attention_forward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::attention_forward[reference]", [p] {
        const auto r = reference::attention_forward<double, double>(
            read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
            reference::read_extras<double>(p.extras), p.options);
        write_tensor(r.out, p.out);
        write_tensor(r.lse, p.lse);
      });
  }
};

template <class Exec>
struct List<AttentionBackward, Exec> {
  using P = AttentionBackward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, attention_backward_workspace,
                     host::BackwardEntry<Exec, host::Isa::avx512_bf16>,
                     host::BackwardEntry<Exec, host::Isa::avx512>, host::BackwardEntry<Exec, host::Isa::avx2>,
                     host::BackwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace& workspace) {
    dispatch_dtype(p.q.dtype,
                   [&]<class T>(std::type_identity<T>) { attention_backward_kokkos<T>(exec, p, workspace); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::attention_backward[reference]", [p] {
        const auto r = reference::attention_backward<double, double>(
            read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
            reference::read_extras<double>(p.extras), read_tensor<double>(p.dout), p.options,
            {read_tensor<double>(p.out), read_tensor<double>(p.lse)});
        write_tensor(r.dq, p.dq);
        write_tensor(r.dk, p.dk);
        write_tensor(r.dv, p.dv);
        write_tensor(r.dbias, p.gradients.dbias);
        accumulate_tensor(r.dsinks, p.gradients.dsinks);
      });
  }
};

}  // namespace kformer::Impl
