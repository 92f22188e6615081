// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/rope/host/entries.hpp"
#include "ops/rope/kokkos.hpp"
#include "ops/rope/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<RopeTables, Exec> {
  using P = RopeTables;
  static KernelList<P, Exec> get() {
    static constexpr std::array<Kernel<P, Exec>, 2> all{{
        {"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry},
        {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
    }};
    return without_reference_on_device<Exec>(all);
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    p.cos.dtype == DType::f64 ? rope_tables_kokkos<double>(exec, p) : rope_tables_kokkos<float>(exec, p);
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::rope_tables[reference]", [p] {
        const auto r = reference::rope_tables<double, double>(p.cos.extent[0], p.cos.extent[1], p.options);
        write_tensor(r.cos, p.cos);
        write_tensor(r.sin, p.sin);
      });
  }
};

/// The two directions differ by a sign.
template <class P, class Exec, int direction>
struct RopeRotationList {
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, RopeRotationList, no_workspace<P>,
                     host::RopeRotationEntry<P, Exec, host::Isa::avx512_bf16, direction>,
                     host::RopeRotationEntry<P, Exec, host::Isa::avx512, direction>,
                     host::RopeRotationEntry<P, Exec, host::Isa::avx2, direction>,
                     host::RopeRotationEntry<P, Exec, host::Isa::generic, direction>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    const char* label = direction > 0 ? "kformer::rope_forward[kokkos]" : "kformer::rope_backward[kokkos]";
    dispatch_dtype(p.q.dtype,
                   [&]<class T>(std::type_identity<T>) { rope_rotate_kokkos<T>(exec, label, p, direction); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(
          exec, direction > 0 ? "kformer::rope_forward[reference]" : "kformer::rope_backward[reference]", [p] {
            const TensorRef both[] = {p.q, p.k};  // named: nvcc 13 garbles a range-for over a braced list here
            for (const TensorRef& x : both)
              write_tensor(reference::rope_rotate<double, double>(
                               read_tensor<double>(x), read_tensor<double>(p.cos), read_tensor<double>(p.sin),
                               read_tensor<double>(p.positions), p.first_position, p.layout, direction),
                           x);
          });
  }
};

template <class Exec>
struct List<RopeForward, Exec> : RopeRotationList<RopeForward, Exec, +1> {};

template <class Exec>
struct List<RopeBackward, Exec> : RopeRotationList<RopeBackward, Exec, -1> {};

}  // namespace kformer::Impl
