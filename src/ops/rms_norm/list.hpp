// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/rms_norm/kokkos.hpp"
#include "ops/rms_norm/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<RmsNormForward, Exec> {
  using P = RmsNormForward;
  static KernelList<P, Exec> get() {
    static constexpr std::array<Kernel<P, Exec>, 2> all{{
        {"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry},
        {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
    }};
    return without_reference_on_device<Exec>(all);
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) { rms_norm_forward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::rms_norm_forward[reference]", [p] {
        const auto r = reference::rms_norm_forward<double, double>(
            read_tensor<double>(p.x), read_tensor<double>(p.residual), read_tensor<double>(p.weight), p.eps);
        write_tensor(r.sum, p.sum);
        write_tensor(r.y, p.y);
        write_tensor(r.rstd, p.rstd);
      });
  }
};

template <class Exec>
struct List<RmsNormBackward, Exec> {
  using P = RmsNormBackward;
  static KernelList<P, Exec> get() {
    static constexpr std::array<Kernel<P, Exec>, 2> all{{
        {"kokkos", never_rejects<P>, rms_norm_backward_workspace, kokkos_entry},
        {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
    }};
    return without_reference_on_device<Exec>(all);
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace& workspace) {
    dispatch_dtype(p.x.dtype,
                   [&]<class T>(std::type_identity<T>) { rms_norm_backward_kokkos<T>(exec, p, workspace); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::rms_norm_backward[reference]", [p] {
        auto r = reference::rms_norm_backward<double, double>(
            read_tensor<double>(p.x), read_tensor<double>(p.weight), read_tensor<double>(p.rstd),
            read_tensor<double>(p.dy), read_tensor<double>(p.dsum));
        write_tensor(r.dx, p.dx);
        accumulate_tensor(r.dweight, p.dweight);
      });
  }
};

}  // namespace kformer::Impl
