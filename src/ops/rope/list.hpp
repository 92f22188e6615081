// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/rope/host/entries.hpp"
#include "ops/rope/kokkos.hpp"
#include "ops/rope/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<RopeTables, Exec> : UsualList<RopeTables, Exec> {
  static void kokkos(const Exec& exec, const RopeTables& p, const Workspace&) {
    p.cos.dtype == DType::f64 ? rope_tables_kokkos<double>(exec, p) : rope_tables_kokkos<float>(exec, p);
  }
  static void reference(const RopeTables& p) {
    const auto r = reference::rope_tables<double, double>(p.cos.extent[0], p.cos.extent[1], p.options);
    write_tensor(r.cos, p.cos);
    write_tensor(r.sin, p.sin);
  }
};

/// The two directions differ by a sign.
template <class P, class Exec, int direction, template <class, host::Isa> class Entry>
struct RopeRotationList : UsualList<P, Exec, Simd<Entry, host::Isa::avx512_bf16>> {
  static void kokkos(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) {
      rope_rotate_kokkos<T>(exec, label<P>("kokkos").c_str(), p, direction);
    });
  }
  static void reference(const P& p) {
    const TensorRef both[] = {p.q, p.k};  // named: nvcc 13 garbles a range-for over a braced list here
    for (const TensorRef& x : both)
      write_tensor(reference::rope_rotate<double, double>(
                       read_tensor<double>(x), read_tensor<double>(p.cos), read_tensor<double>(p.sin),
                       read_tensor<double>(p.positions), p.first_position, p.layout, direction),
                   x);
  }
};

template <class Exec>
struct List<RopeForward, Exec> : RopeRotationList<RopeForward, Exec, +1, host::RopeForwardEntry> {};

template <class Exec>
struct List<RopeBackward, Exec> : RopeRotationList<RopeBackward, Exec, -1, host::RopeBackwardEntry> {};

}  // namespace kformer::Impl
