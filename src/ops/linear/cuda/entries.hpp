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

/// A workspace is not needed; one that is given widens the library's choice.
template <class P, class Exec, class Library = CublasLt>
struct MatmulEntry {
  static constexpr Kernel<P, Exec> entry() { return {Library::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (p.options.batch_invariant) return not_batch_invariant;
    const MatmulPlan plan = plan_of(p);
    const std::string why = matmul_refusal(plan);
    Device<Exec>::make_current(Exec());  // the library chooses for the device of the calling thread
    return why.empty() ? Library::refusal(plan) : why;
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const std::string text = label<P>(Library::name);
    announced(text.c_str(), exec, [&] {
      Library::run(text.c_str(), Device<Exec>::stream(exec), plan_of(p), workspace.data, workspace.bytes);
    });
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
