// SPDX-License-Identifier: MIT
// The shortest program: normalises the rows of a View. Checks that their mean square is 1.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/ops/rms_norm.hpp"

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const int rows = 4, hidden = 256;

  // [call]
  const Kokkos::View<float**, Kokkos::LayoutRight> x("x", rows, hidden), y("y", rows, hidden);
  const Kokkos::View<float*> weight("weight", hidden), rstd("rstd", rows);
  Kokkos::fill_random(x, Kokkos::Random_XorShift64_Pool<>(1), -3.0f, 3.0f);
  Kokkos::deep_copy(weight, 1.0f);

  kformer::rms_norm_forward(Kokkos::DefaultExecutionSpace(), x, weight, y, rstd);
  // [call]

  const auto y_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y);
  double mean_square = 0;
  for (int i = 0; i < hidden; ++i) mean_square += y_host(0, i) * y_host(0, i) / hidden;
  std::printf("mean square of the first row: %.4f\n", mean_square);
  return std::abs(mean_square - 1) < 1e-4 ? 0 : 1;
}
