// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/ternary/kokkos.hpp"
#include "ops/ternary/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<TernaryQuantize, Exec> {
  using P = TernaryQuantize;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, ternary_quantize_workspace>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace& workspace) {
    dispatch_dtype(p.weight.dtype, [&]<class T>(std::type_identity<T>) {
      if (p.matrix.format == QuantizedFormat::tq2_0)
        ternary_quantize_kokkos<QuantizedFormat::tq2_0, T>(exec, p, workspace);
      else
        ternary_quantize_kokkos<QuantizedFormat::tq1_0, T>(exec, p, workspace);
    });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::ternary_quantize[reference]",
                  [p] { reference::ternary_quantize(read_tensor<double>(p.weight), p.matrix); });
  }
};

template <class Exec>
struct List<TernaryActivations, Exec> {
  using P = TernaryActivations;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) { ternary_activations_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::ternary_activations[reference]", [p] {
        dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) {
          write_tensor(reference::int8_activations<compute_t<T>, double, double>(read_tensor<double>(p.x), 0),
                       p.y);
        });
      });
  }
};

}  // namespace kformer::Impl
