// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/cross_entropy/host/entries.hpp"
#include "ops/cross_entropy/kokkos.hpp"
#include "ops/cross_entropy/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<CrossEntropyForward, Exec>
    : UsualList<CrossEntropyForward, Exec, Simd<host::CrossEntropyForwardEntry, host::Isa::avx512_bf16>> {
  static void kokkos(const Exec& exec, const CrossEntropyForward& p, const Workspace&) {
    dispatch_dtype(p.logits.dtype, [&]<class T>(std::type_identity<T>) {
      with_soft_cap<compute_t<T>>(p.options.softcap,
                                  [&](const auto& cap) { cross_entropy_forward_kokkos<T>(exec, p, cap); });
    });
  }
  static void reference(const CrossEntropyForward& p) {
    const auto r = reference::cross_entropy_forward<double>(read_tensor<double>(p.logits),
                                                            read_tensor<double>(p.targets), p.options);
    write_tensor(r.loss, p.loss);
    write_tensor(r.lse, p.lse);
  }
};

template <class Exec>
struct List<CrossEntropyBackward, Exec>
    : UsualList<CrossEntropyBackward, Exec, Simd<host::CrossEntropyBackwardEntry, host::Isa::avx512_bf16>> {
  static void kokkos(const Exec& exec, const CrossEntropyBackward& p, const Workspace&) {
    dispatch_dtype(p.logits.dtype, [&]<class T>(std::type_identity<T>) {
      with_soft_cap<compute_t<T>>(p.options.softcap,
                                  [&](const auto& cap) { cross_entropy_backward_kokkos<T>(exec, p, cap); });
    });
  }
  static void reference(const CrossEntropyBackward& p) {
    write_tensor(reference::cross_entropy_backward<double, double>(
                     read_tensor<double>(p.logits), read_tensor<double>(p.targets), read_tensor<double>(p.lse),
                     read_tensor<double>(p.dloss), p.options),
                 p.dlogits);
  }
};

}  // namespace kformer::Impl
