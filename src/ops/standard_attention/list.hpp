// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/standard_attention/host/entries.hpp"
#include "ops/standard_attention/kokkos.hpp"
#include "ops/standard_attention/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<StandardAttentionForward, Exec>
    : UsualList<StandardAttentionForward, Exec,
                Simd<host::StandardAttentionForwardEntry, host::Isa::avx512_bf16>> {
  static constexpr bool multiplies_pairs = true;

  static void kokkos(const Exec& exec, const StandardAttentionForward& p, const Workspace&) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) {
      standard_attention_forward_by<T>(KokkosAttentionSteps<Exec>{exec, p.function}, p);
    });
  }
  static void reference(const StandardAttentionForward& p) {
    const auto r = reference::attention_forward<double, double>(
        read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
        {.bias = read_tensor<double>(p.mask)}, p.options);
    write_tensor(r.out, p.out);
    write_tensor(r.probabilities, p.probabilities);
  }
};

template <class Exec>
struct List<StandardAttentionBackward, Exec>
    : UsualList<StandardAttentionBackward, Exec,
                Simd<host::StandardAttentionBackwardEntry, host::Isa::avx512_bf16>> {
  static constexpr auto kokkos_workspace = standard_attention_backward_workspace;
  static constexpr bool multiplies_pairs = true;

  static void kokkos(const Exec& exec, const StandardAttentionBackward& p, const Workspace& workspace) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) {
      standard_attention_backward_by<T>(KokkosAttentionSteps<Exec>{exec, p.function}, p, workspace);
    });
  }
  static void reference(const StandardAttentionBackward& p) {
    const auto r = reference::standard_attention_backward<double, double>(
        read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.v),
        read_tensor<double>(p.probabilities), read_tensor<double>(p.dout), p.options);
    write_tensor(r.dq, p.dq);
    write_tensor(r.dk, p.dk);
    write_tensor(r.dv, p.dv);
  }
};

}  // namespace kformer::Impl
