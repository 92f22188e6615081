// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/swiglu/host/entries.hpp"
#include "ops/swiglu/kokkos.hpp"
#include "ops/swiglu/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<SwigluForward, Exec>
    : UsualList<SwigluForward, Exec, Simd<host::SwigluForwardEntry, host::Isa::avx512_bf16>> {
  static void kokkos(const Exec& exec, const SwigluForward& p, const Workspace&) {
    dispatch_dtype(p.gate.dtype, [&]<class T>(std::type_identity<T>) { swiglu_forward_kokkos<T>(exec, p); });
  }
  static void reference(const SwigluForward& p) {
    write_tensor(
        reference::swiglu_forward<double, double>(read_tensor<double>(p.gate), read_tensor<double>(p.up)), p.y);
  }
};

template <class Exec>
struct List<SwigluBackward, Exec>
    : UsualList<SwigluBackward, Exec, Simd<host::SwigluBackwardEntry, host::Isa::avx512_bf16>> {
  static void kokkos(const Exec& exec, const SwigluBackward& p, const Workspace&) {
    dispatch_dtype(p.gate.dtype, [&]<class T>(std::type_identity<T>) { swiglu_backward_kokkos<T>(exec, p); });
  }
  static void reference(const SwigluBackward& p) {
    const auto r = reference::swiglu_backward<double, double>(
        read_tensor<double>(p.gate), read_tensor<double>(p.up), read_tensor<double>(p.dy));
    write_tensor(r.dgate, p.dgate);
    write_tensor(r.dup, p.dup);
  }
};

}  // namespace kformer::Impl
