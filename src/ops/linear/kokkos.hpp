// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/product.hpp"

/// \file
/// The portable kernel of the bias gradient. Those of the products are kformer/ops/impl/matmul.hpp.

namespace kformer::Impl {

template <class T, class Exec>
void linear_backward_bias_kokkos(const Exec& exec, const LinearBackwardBias& p) {
  using C = compute_t<T>;
  const auto dy = p.dy.as<const T, 2>();
  const auto dbias = p.dbias.as<C, 1>();
  const std::int64_t rows = dy.extent[0], out = dy.extent[1];
  // Neighbouring columns share cache lines on the host, and are neighbouring threads on a device.
  constexpr int width = is_host_space<Exec> ? 16 : 1;
  Kokkos::parallel_for(
      "kformer::linear_backward_bias[kokkos]",
      Kokkos::RangePolicy<Exec>(exec, 0, ceil_div<std::int64_t>(out, width)),
      KOKKOS_LAMBDA(std::int64_t block) {
        const std::int64_t first = block * width;
        const int count = static_cast<int>(Kokkos::min<std::int64_t>(width, out - first));
        C sum[width] = {};
        for (std::int64_t row = 0; row < rows; ++row)
          for (int i = 0; i < count; ++i) sum[i] += static_cast<C>(dy(row, first + i));
        for (int i = 0; i < count; ++i) dbias(first + i) += sum[i];
      });
}

}  // namespace kformer::Impl
