// SPDX-License-Identifier: MIT
// Projects rows with a matrix and adds a residual, with an installed Kformer. Checks a number worked out by hand.
#include <Kokkos_Core.hpp>
#include <cstdio>
#include <kformer/kformer.hpp>

static_assert(KFORMER_VERSION >= 200, "needs Kformer 0.2 or newer");

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Kokkos::DefaultExecutionSpace exec;
  const Kokkos::View<float**, Kokkos::LayoutRight> x("x", 3, 8), weight("weight", 5, 8),
      residual("residual", 3, 5), y("y", 3, 5);
  Kokkos::deep_copy(x, 2.0f);
  Kokkos::deep_copy(weight, 0.5f);
  Kokkos::deep_copy(residual, 1.0f);

  kformer::linear_residual_forward(exec, x, weight, residual, y);

  const auto y_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y);
  std::printf("Kformer %d.%d.%d: y[2,4] = %g, expected 9\n", KFORMER_VERSION_MAJOR, KFORMER_VERSION_MINOR,
              KFORMER_VERSION_PATCH, y_host(2, 4));
  return y_host(2, 4) == 9 ? 0 : 1;
}
