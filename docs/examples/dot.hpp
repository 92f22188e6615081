// SPDX-License-Identifier: MIT
// Σ a ∘ b over all elements, for the checks of the examples.
#pragma once

#include <Kokkos_Core.hpp>

template <class View>
double dot(const View& a, const View& b) {
  const auto *x = a.data(), *y = b.data();
  double sum = 0;
  Kokkos::parallel_reduce(
      "dot", a.size(), KOKKOS_LAMBDA(int i, double& partial) { partial += double(x[i]) * y[i]; }, sum);
  return sum;
}
