// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/ternary/kokkos.hpp"
#include "ops/ternary/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<TernaryQuantize, Exec> : UsualList<TernaryQuantize, Exec> {
  static constexpr auto kokkos_workspace = ternary_quantize_workspace;

  static void kokkos(const Exec& exec, const TernaryQuantize& p, const Workspace& workspace) {
    dispatch_dtype(p.weight.dtype, [&]<class T>(std::type_identity<T>) {
      if (p.matrix.format == QuantizedFormat::tq2_0)
        ternary_quantize_kokkos<QuantizedFormat::tq2_0, T>(exec, p, workspace);
      else
        ternary_quantize_kokkos<QuantizedFormat::tq1_0, T>(exec, p, workspace);
    });
  }
  static void reference(const TernaryQuantize& p) {
    reference::ternary_quantize(read_tensor<double>(p.weight), p.matrix);
  }
};

template <class Exec>
struct List<TernaryActivations, Exec> : UsualList<TernaryActivations, Exec> {
  static void kokkos(const Exec& exec, const TernaryActivations& p, const Workspace&) {
    dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) { ternary_activations_kokkos<T>(exec, p); });
  }
  static void reference(const TernaryActivations& p) {
    dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) {
      write_tensor(reference::int8_activations<compute_t<T>, double, double>(read_tensor<double>(p.x), 0), p.y);
    });
  }
};

}  // namespace kformer::Impl
