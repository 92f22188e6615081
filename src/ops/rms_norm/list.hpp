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
struct List<RmsNormForward, Exec>
    : UsualList<RmsNormForward, Exec, Simd<host::RmsNormForwardEntry, host::Isa::avx512_bf16>> {
  static void kokkos(const Exec& exec, const RmsNormForward& p, const Workspace&) {
    dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) { rms_norm_forward_kokkos<T>(exec, p); });
  }
  static void reference(const RmsNormForward& p) {
    dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) {
      const auto r = reference::rms_norm_forward<double, double, T>(norm_rows_of(read_tensor<double>(p.x)),
                                                                    read_tensor<double>(p.residual),
                                                                    read_tensor<double>(p.weight), p.eps);
      write_tensor(r.sum, p.sum);
      write_tensor(r.y, p.y);
      write_tensor(r.rstd, p.rstd);
    });
  }
};

template <class Exec>
struct List<QkNormForward, Exec>
    : UsualList<QkNormForward, Exec, Simd<host::QkNormForwardEntry, host::Isa::avx512_bf16>> {
  static void kokkos(const Exec& exec, const QkNormForward& p, const Workspace&) {
    dispatch_dtype(p.q.x.dtype, [&]<class T>(std::type_identity<T>) { qk_norm_forward_kokkos<T>(exec, p); });
  }
  static void reference(const QkNormForward& p) {
    for (const RmsNormForward& side : {p.q, p.k}) List<RmsNormForward, Exec>::reference(side);
  }
};

template <class Exec>
struct List<RmsNormBackward, Exec>
    : UsualList<RmsNormBackward, Exec, Simd<host::RmsNormBackwardEntry, host::Isa::avx512_bf16>> {
  static constexpr auto kokkos_workspace = rms_norm_backward_workspace;

  static void kokkos(const Exec& exec, const RmsNormBackward& p, const Workspace& workspace) {
    dispatch_dtype(p.x.dtype,
                   [&]<class T>(std::type_identity<T>) { rms_norm_backward_kokkos<T>(exec, p, workspace); });
  }
  static void reference(const RmsNormBackward& p) {
    auto r = reference::rms_norm_backward<double, double>(
        norm_rows_of(read_tensor<double>(p.x)), read_tensor<double>(p.weight), read_tensor<double>(p.rstd),
        norm_rows_of(read_tensor<double>(p.dy)), read_tensor<double>(p.dsum));
    write_tensor(r.dx, p.dx);
    if (p.dweight.size() > 0) accumulate_tensor(r.dweight, p.dweight);
  }
};

}  // namespace kformer::Impl
