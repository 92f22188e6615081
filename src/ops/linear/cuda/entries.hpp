// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "ops/common/cuda/device.hpp"
#include "ops/common/label.hpp"
#include "ops/common/list.hpp"
#include "ops/linear/cuda/matmul.hpp"
#include "ops/linear/product.hpp"

/// \file
/// The entries of CUDA kernel lists that hand the product to a library.

namespace kformer::Impl::cuda {

template <class P>
MatmulPlan plan_of(const P& p) {
  return with_product(p, [&]<class T, class O>(const MatrixProduct<T, O>& q) {
    return matmul_plan(
        {.factor_type = dtype_of<T>,
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
         .allow_tf32 = p.options.allow_tf32});
  });
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

/// A workspace is not needed; one that is given widens the library's choice.
template <class P, class Exec, class Library = CublasLt>
struct MatmulEntry {
  static constexpr Kernel<P, Exec> entry() { return {Library::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (p.options.batch_invariant) return not_batch_invariant;
    const MatmulPlan plan = plan_of(p);
    if (std::string why = matmul_refusal(plan); !why.empty()) return why;
    Device<Exec>::make_current(Exec());  // the library chooses for the device of the calling thread
    return Library::refusal(supported(plan));
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const std::string text = label<P>(Library::name);
    Device<Exec>::make_current(exec);
    const MatmulPlan wanted = plan_of(p), plan = supported(wanted);
    if (plan.bias != wanted.bias) with_product(p, [&](const auto& q) { write_bias(text, exec, q); });
    announced(text.c_str(), exec, [&] {
      Library::run(text.c_str(), Device<Exec>::stream(exec), plan, workspace.data, workspace.bytes);
    });
  }

 private:
  /// The plan itself, or without its bias where the library adds none to such a product.
  static MatmulPlan supported(const MatmulPlan& plan) {
    return plan.bias == nullptr || Library::refusal(plan).empty() ? plan : with_bias_in_result(plan);
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<LinearForward, Kokkos::Cuda> : Entries<cuda::MatmulEntry<LinearForward, Kokkos::Cuda>> {};
template <>
struct DeviceEntries<LinearBackwardInput, Kokkos::Cuda>
    : Entries<cuda::MatmulEntry<LinearBackwardInput, Kokkos::Cuda>> {};
template <>
struct DeviceEntries<LinearBackwardWeight, Kokkos::Cuda>
    : Entries<cuda::MatmulEntry<LinearBackwardWeight, Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
