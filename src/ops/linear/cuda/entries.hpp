// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "ops/common/cuda/device.hpp"
#include "ops/common/label.hpp"
#include "ops/common/list.hpp"
#include "ops/linear/cuda/dot_entries.hpp"
#include "ops/linear/cuda/matmul.hpp"
#include "ops/linear/product.hpp"

/// \file
/// The entries of CUDA kernel lists: few rows first, then a library.

namespace kformer::Impl::cuda {

template <class T, class O>
MatmulPlan plan_of(const MatrixProduct<T, O>& q, bool allow_tf32) {
  return matmul_plan({.factor_type = dtype_of<T>,
                      .result_type = dtype_of<O>,
                      .batches = q.batches,
                      .rows = q.rows,
                      .cols = q.cols,
                      .inner = q.inner,
                      .left = {q.left.data, q.left.index_stride, q.left.inner_stride, q.left.batch_stride},
                      .right = {q.right.data, q.right.index_stride, q.right.inner_stride, q.right.batch_stride},
                      .result = q.result,
                      .row_stride = q.row_stride,
                      .batch_stride = q.batch_stride,
                      .addend = q.addend,
                      .addend_row_stride = q.addend_row_stride,
                      .addend_batch_stride = q.addend_batch_stride,
                      .scale = q.alpha,
                      .allow_tf32 = allow_tf32});
}

/// Writes the bias of a product, its addend, into every row of the result.
template <class T, class O, class Exec>
void write_bias(const std::string& label, const Exec& exec, const MatrixProduct<T, O>& p) {
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, p.batches * p.rows * p.cols),
      KOKKOS_LAMBDA(std::int64_t i) {
        const std::int64_t col = i % p.cols, row = i / p.cols % p.rows, batch = i / p.cols / p.rows;
        p.result[batch * p.batch_stride + row * p.row_stride + col] = p.addend[col];
      });
}

/// Products by a library, on the device of the calling thread.
template <class Library>
struct LibraryProducts {
  /// Why the library does not take this plan, or nothing.
  static std::string refusal(const MatmulPlan& plan) {
    if (std::string why = matmul_refusal(plan); !why.empty()) return why;
    return Library::refusal(supported(plan));
  }

  template <class T, class O, class Exec>
  static void run(const std::string& label, const Exec& exec, const MatrixProduct<T, O>& q, bool allow_tf32,
                  const Workspace& workspace) {
    const MatmulPlan wanted = plan_of(q, allow_tf32), plan = supported(wanted);
    if (plan.bias != wanted.bias) write_bias(label, exec, q);
    announced(label.c_str(), exec, [&] {
      Library::run(label.c_str(), Device<Exec>::stream(exec), plan, workspace.data, workspace.bytes);
    });
  }

 private:
  /// The plan itself, or without its bias where the library adds none to such a product.
  static MatmulPlan supported(const MatmulPlan& plan) {
    return plan.bias == nullptr || Library::refusal(plan).empty() ? plan : with_bias_in_result(plan);
  }
};

/// A workspace is not needed; one that is given widens the library's choice.
template <class P, class Exec, class Library = CublasLt>
struct MatmulEntry {
  static constexpr Kernel<P, Exec> entry() { return {Library::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (p.options.batch_invariant) return not_batch_invariant;
    Device<Exec>::make_current(Exec());  // the library chooses for the device of the calling thread
    return with_product(
        p, [&](const auto& q) { return LibraryProducts<Library>::refusal(plan_of(q, p.options.allow_tf32)); });
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    Device<Exec>::make_current(exec);
    with_product(p, [&](const auto& q) {
      LibraryProducts<Library>::run(label<P>(Library::name), exec, q, p.options.allow_tf32, workspace);
    });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<LinearForward, Kokkos::Cuda>
    : Entries<cuda::LinearDotEntry<Kokkos::Cuda>, cuda::MatmulEntry<LinearForward, Kokkos::Cuda>> {};
template <>
struct DeviceEntries<LinearBackwardInput, Kokkos::Cuda>
    : Entries<cuda::MatmulEntry<LinearBackwardInput, Kokkos::Cuda>> {};
template <>
struct DeviceEntries<LinearBackwardWeight, Kokkos::Cuda>
    : Entries<cuda::MatmulEntry<LinearBackwardWeight, Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
