// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/embedding/host/entries.hpp"
#include "ops/embedding/kokkos.hpp"
#include "ops/embedding/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<EmbeddingForward, Exec> {
  using P = EmbeddingForward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>, host::EmbeddingForwardEntry<Exec, host::Isa::avx512>,
                     host::EmbeddingForwardEntry<Exec, host::Isa::avx2>,
                     host::EmbeddingForwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.weight.dtype,
                   [&]<class T>(std::type_identity<T>) { embedding_forward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::embedding_forward[reference]", [p] {
        write_tensor(reference::embedding_forward(read_tensor<double>(p.ids), read_tensor<double>(p.weight)),
                     p.y);
      });
  }
};

template <class Exec>
struct List<EmbeddingBackward, Exec> {
  using P = EmbeddingBackward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>, host::EmbeddingBackwardEntry<Exec, host::Isa::avx512>,
                     host::EmbeddingBackwardEntry<Exec, host::Isa::avx2>,
                     host::EmbeddingBackwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.dy.dtype, [&]<class T>(std::type_identity<T>) { embedding_backward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::embedding_backward[reference]", [p] {
        write_tensor(reference::embedding_backward(read_tensor<double>(p.ids), read_tensor<double>(p.dy),
                                                   read_tensor<double>(p.dweight)),
                     p.dweight);
      });
  }
};

}  // namespace kformer::Impl
