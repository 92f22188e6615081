// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>

#include "support/every_kernel.hpp"

/// \file
/// Operands that do not fit the caches: kernels may write their results in another way.

namespace kformer::Testing {

template <class T>
using LargeMatrix = Kokkos::View<T**, Kokkos::LayoutRight, Exec::memory_space>;

/// The columns that `rows_of` gives: rows are aligned, and their last elements make no whole vector.
template <class T>
constexpr std::int64_t large_columns(std::int64_t row_bytes) {
  return row_bytes / static_cast<std::int64_t>(sizeof(T)) - 3;
}

/// Zeros in rows of `row_bytes`.
template <class T>
LargeMatrix<T> large_zeros(std::int64_t rows, std::int64_t row_bytes) {
  return LargeMatrix<T>("kformer::Testing::large", rows, row_bytes / static_cast<std::int64_t>(sizeof(T)));
}

/// Numbers from −2 to 2.
template <class T>
LargeMatrix<T> large_matrix(std::int64_t rows, std::int64_t row_bytes, std::uint32_t seed) {
  const LargeMatrix<T> matrix = large_zeros<T>(rows, row_bytes);
  const auto host = Kokkos::create_mirror_view(matrix);
  for (std::size_t i = 0; i < host.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    host.data()[i] = T(static_cast<compute_t<T>>(seed >> 8) * compute_t<T>(0x1p-22) - 2);
  }
  Kokkos::deep_copy(matrix, host);
  return matrix;
}

/// Rows [first, end) without the last elements.
template <class T>
auto rows_of(const LargeMatrix<T>& matrix, std::int64_t first, std::int64_t end) {
  return Kokkos::subview(matrix, std::pair(first, end),
                         std::pair(std::int64_t(0), large_columns<T>(matrix.stride(0) * sizeof(T))));
}

template <class T>
bool same_bits(const LargeMatrix<T>& a, const LargeMatrix<T>& b) {
  Exec().fence("kformer::Testing::same_bits");
  const auto x = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, a);
  const auto y = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, b);
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

/// `f` with each kernel forced in turn that takes an `operand` stored so, but the reference and kernels that then refuse the
/// extents of `f`, as those do that need whole vectors. At least one must run.
template <class Problem, class F>
void with_each_kernel(TensorRef Problem::* operand, DType storage, F f) {
  Problem problem{};
  (problem.*operand).dtype = storage;
  bool ran = false;
  for (const auto& kernel : kernels<Problem, Exec>()) {
    if (kernel.name == std::string("reference") || !kernel.reject(problem).empty()) continue;
    const ForcedKernels forced(std::string(Problem::op) + ':' + kernel.name);
    BOOST_TEST_CONTEXT(Problem::function << '[' << kernel.name << ']') {
      try {
        f();
        ran = true;
      } catch (const NotSupported& error) {
        if (std::string(error.what()).find("asks for a kernel that refuses") == std::string::npos) throw;
      }
    }
  }
  BOOST_TEST(ran, "no kernel took the operands");
}

}  // namespace kformer::Testing
