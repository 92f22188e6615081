// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/flash_backward.hpp"
#include "kformer/ops/impl/flash_forward.hpp"
#include "ops/attention/host/entries.hpp"
#include "ops/attention/reference.hpp"
#include "ops/common/list.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<AttentionForward, Exec>
    : UsualList<AttentionForward, Exec, Simd<host::DecodeEntry, host::Isa::avx512_bf16>,
                Simd<host::ForwardEntry, host::Isa::avx512_bf16>> {
  static constexpr bool multiplies_pairs = true;

  static void kokkos(const Exec& exec, const AttentionForward& p, const Workspace&) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) { attention_forward_kokkos<T>(exec, p); });
  }
  static void reference(const AttentionForward& p) {
    const auto r = reference::attention_forward<double, double>(
        read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
        reference::read_extras<double>(p.extras), p.options);
    write_tensor(r.out, p.out);
    write_tensor(r.lse, p.lse);
  }
};

template <class Exec>
struct List<AttentionBackward, Exec>
    : UsualList<AttentionBackward, Exec, Simd<host::BackwardEntry, host::Isa::avx512_bf16>> {
  static constexpr auto kokkos_workspace = attention_backward_workspace;
  static constexpr bool multiplies_pairs = true;

  static void kokkos(const Exec& exec, const AttentionBackward& p, const Workspace& workspace) {
    dispatch_dtype(p.q.dtype,
                   [&]<class T>(std::type_identity<T>) { attention_backward_kokkos<T>(exec, p, workspace); });
  }
  static void reference(const AttentionBackward& p) {
    const auto r = reference::attention_backward<double, double>(
        read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
        reference::read_extras<double>(p.extras), read_tensor<double>(p.dout), p.options,
        {read_tensor<double>(p.out), read_tensor<double>(p.lse)});
    write_tensor(r.dq, p.dq);
    write_tensor(r.dk, p.dk);
    write_tensor(r.dv, p.dv);
    write_tensor(r.dbias, p.gradients.dbias);
    accumulate_tensor(r.dsinks, p.gradients.dsinks);
  }
};

}  // namespace kformer::Impl
