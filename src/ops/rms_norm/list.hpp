// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/rms_norm/host/entries.hpp"
#include "ops/rms_norm/kokkos.hpp"
#include "ops/rms_norm/reference.hpp"

namespace kformer::Impl {

/// The rows that are normalised, (rows, hidden): the heads of all tokens, or x itself.
template <class Real>
HostTensor<Real> norm_rows_of(HostTensor<Real> x) {
  if (x.rank() < 3) return x;
  HostTensor<Real> rows({x.extent(0) * x.extent(1), x.extent(2)});
  rows.values() = std::move(x.values());
  return rows;
}

template <class Exec>
struct List<RmsNormForward, Exec> {
  using P = RmsNormForward;
  static KernelList<P, Exec> get() {
    return simd_list<P, Exec, List, no_workspace<P>, host::RmsNormForwardEntry<Exec, host::Isa::avx512_bf16>,
                     host::RmsNormForwardEntry<Exec, host::Isa::avx512>,
                     host::RmsNormForwardEntry<Exec, host::Isa::avx2>,
                     host::RmsNormForwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) { rms_norm_forward_kokkos<T>(exec, p); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::rms_norm_forward[reference]", [p] {
        dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) {
          const auto r = reference::rms_norm_forward<double, double, T>(norm_rows_of(read_tensor<double>(p.x)),
                                                                        read_tensor<double>(p.residual),
                                                                        read_tensor<double>(p.weight), p.eps);
          write_tensor(r.sum, p.sum);
          write_tensor(r.y, p.y);
          write_tensor(r.rstd, p.rstd);
        });
      });
  }
};

template <class Exec>
struct List<RmsNormBackward, Exec> {
  using P = RmsNormBackward;
  static KernelList<P, Exec> get() {
    return simd_list<
        P, Exec, List, rms_norm_backward_workspace, host::RmsNormBackwardEntry<Exec, host::Isa::avx512_bf16>,
        host::RmsNormBackwardEntry<Exec, host::Isa::avx512>, host::RmsNormBackwardEntry<Exec, host::Isa::avx2>,
        host::RmsNormBackwardEntry<Exec, host::Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace& workspace) {
    dispatch_dtype(p.x.dtype,
                   [&]<class T>(std::type_identity<T>) { rms_norm_backward_kokkos<T>(exec, p, workspace); });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::rms_norm_backward[reference]", [p] {
        auto r = reference::rms_norm_backward<double, double>(
            norm_rows_of(read_tensor<double>(p.x)), read_tensor<double>(p.weight), read_tensor<double>(p.rstd),
            norm_rows_of(read_tensor<double>(p.dy)), read_tensor<double>(p.dsum));
        write_tensor(r.dx, p.dx);
        accumulate_tensor(r.dweight, p.dweight);
      });
  }
};

}  // namespace kformer::Impl
