// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/embedding/host/entries.hpp"
#include "ops/embedding/kokkos.hpp"
#include "ops/embedding/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<EmbeddingForward, Exec> : UsualList<EmbeddingForward, Exec, Simd<host::EmbeddingForwardEntry>> {
  static void kokkos(const Exec& exec, const EmbeddingForward& p, const Workspace&) {
    dispatch_dtype(p.weight.dtype,
                   [&]<class T>(std::type_identity<T>) { embedding_forward_kokkos<T>(exec, p); });
  }
  static void reference(const EmbeddingForward& p) {
    write_tensor(reference::embedding_forward(read_tensor<double>(p.ids), read_tensor<double>(p.weight)), p.y);
  }
};

template <class Exec>
struct List<EmbeddingBackward, Exec> : UsualList<EmbeddingBackward, Exec, Simd<host::EmbeddingBackwardEntry>> {
  static void kokkos(const Exec& exec, const EmbeddingBackward& p, const Workspace&) {
    dispatch_dtype(p.dy.dtype, [&]<class T>(std::type_identity<T>) { embedding_backward_kokkos<T>(exec, p); });
  }
  static void reference(const EmbeddingBackward& p) {
    write_tensor(reference::embedding_backward(read_tensor<double>(p.ids), read_tensor<double>(p.dy),
                                               read_tensor<double>(p.dweight)),
                 p.dweight);
  }
};

}  // namespace kformer::Impl
