// SPDX-License-Identifier: MIT
#pragma once

#include <KokkosBlas3_gemm.hpp>

#include <array>
#include <climits>

#include "ops/linear/product.hpp"

/// \file
/// The products through KokkosBlas::gemm, and so through the vendor's library where Kokkos Kernels has one.

namespace kformer::Impl {

/// Why KokkosBlas cannot do this, or nothing.
template <class T, class O>
std::string kokkos_blas_refusal(const MatrixProduct<T, O>& p) {
  if (p.batch_invariant) return not_batch_invariant;
  if (sizeof(T) == 2) return "Kokkos Kernels has no fast product of 16-bit numbers";
  if (p.addend && p.addend != static_cast<const void*>(p.result))
    return "gemm adds only to its result; it cannot add a bias or a separate residual";
  const std::int64_t extents[] = {p.rows, p.cols, p.inner};
  for (const std::int64_t n : extents)
    if (n > INT_MAX) return "an extent of " + std::to_string(n) + " does not fit the int of BLAS";
  auto packed = [&](const Factor<T>& f, std::int64_t indices) {
    return f.inner_stride == 1 ? indices < 2 || f.index_stride == p.inner
                               : p.inner < 2 || f.inner_stride == indices;
  };
  if (!packed(p.left, p.rows) || !packed(p.right, p.cols) || (p.rows > 1 && p.row_stride != p.cols))
    return "the rows of an operand are not contiguous";
  return {};
}

template <class C, class Exec>
void kokkos_blas_matmul(const Exec& exec, const MatrixProduct<C, C>& p) {
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using Space = typename Exec::memory_space;
  auto matrix = [&](const Factor<C>& f, std::int64_t indices) {
    const bool along_sum = f.inner_stride == 1;
    return Kokkos::View<const C**, Kokkos::LayoutRight, Space, Unmanaged>(
        f.data, static_cast<std::size_t>(along_sum ? indices : p.inner),
        static_cast<std::size_t>(along_sum ? p.inner : indices));
  };
  const Kokkos::View<C**, Kokkos::LayoutRight, Space, Unmanaged> result(
      p.result, static_cast<std::size_t>(p.rows), static_cast<std::size_t>(p.cols));
  KokkosBlas::gemm(exec, p.left.inner_stride == 1 ? "N" : "T", p.right.inner_stride == 1 ? "T" : "N", p.alpha,
                   matrix(p.left, p.rows), matrix(p.right, p.cols), C(p.addend ? 1 : 0), result);
}

/// The list entry.
template <class P, class Exec>
constexpr auto kokkos_blas_entries() {
  return std::array<Kernel<P, Exec>, 1>{
      {{"kokkos_blas",
        [](const P& p) { return with_product(p, [](const auto& q) { return kokkos_blas_refusal(q); }); },
        no_workspace<P>,
        [](const Exec& exec, const P& p, const Workspace&) {
          with_each_product(p, [&]<class T, class O>(const MatrixProduct<T, O>& q) {
            if constexpr (sizeof(T) > 2) kokkos_blas_matmul(exec, q);
          });
        }}}};
}

}  // namespace kformer::Impl
