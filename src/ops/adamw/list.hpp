// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/host/entries.hpp"
#include "ops/adamw/kokkos.hpp"
#include "ops/adamw/reference.hpp"
#include "ops/common/list.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<AdamW, Exec> : UsualList<AdamW, Exec, Simd<host::AdamWEntry>> {
  static void kokkos(const Exec& exec, const AdamW& p, const Workspace&) {
    for_each_kind_of_batch(
        p.parameters, [&]<class T, bool is_coded>(const AdamWBatch& batch, std::type_identity<T>,
                                                  std::bool_constant<is_coded>) {
          if constexpr (is_coded)
            adamw_coded_kokkos<T>(exec, batch, adamw_numbers(p.options), gradient_scaling(p));
          else
            adamw_kokkos<T>(exec, batch, adamw_numbers(p.options), gradient_scaling(p));
        });
  }
  static void reference(const AdamW& p) {
    const auto norm = read_tensor<double>(p.norm);
    if (norm.present() && !std::isfinite(norm.values().front())) return;
    for (const AdamWParameter& parameter : p.parameters) {
      auto state = reference::read_parameter<double>(parameter);
      reference::adamw(state, p.options, norm.present() ? norm.values().data() : nullptr);
      reference::write_parameter(state, parameter);
    }
  }
};

template <class Exec>
struct List<GradientNorm, Exec> : UsualList<GradientNorm, Exec, Simd<host::GradientNormEntry>> {
  static constexpr auto kokkos_workspace = gradient_norm_workspace;

  static void kokkos(const Exec& exec, const GradientNorm& p, const Workspace& workspace) {
    if (p.norm.dtype == DType::f64)
      gradient_norm_kokkos<double>(exec, p, workspace);
    else
      gradient_norm_kokkos<float>(exec, p, workspace);
  }
  static void reference(const GradientNorm& p) {
    std::vector<HostTensor<double>> gradients;
    for (const AdamWParameter& parameter : p.parameters)
      gradients.push_back(read_tensor<double>(parameter.gradient));
    HostTensor<double> norm({1});
    norm(0) = reference::gradient_norm(gradients);
    write_tensor(norm, p.norm);
  }
};

}  // namespace kformer::Impl
