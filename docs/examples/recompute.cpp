// SPDX-License-Identifier: MIT
// A chain of steps of your own, reversed while only a few of their inputs are kept. Checks that every schedule gives
// the bits of the one that keeps all inputs.
#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdio>
#include <vector>

#include "kformer/memory/checkpointed.hpp"
#include "kformer/memory/planner.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Vector = Kokkos::View<double*>;
constexpr int size = 1000, steps = 12;

// One step of an explicit Euler scheme for dx/dt = sin(x) with its own coefficient, and its gradient.
void run(std::int64_t i, const Vector& x, const Vector& y) {
  const double h = 0.1 + 0.01 * static_cast<double>(i);
  Kokkos::parallel_for("run", size, KOKKOS_LAMBDA(int j) { y(j) = x(j) + h * Kokkos::sin(x(j)); });
}
void reverse(std::int64_t i, const Vector& x, const Vector& dy, const Vector& dx) {
  const double h = 0.1 + 0.01 * static_cast<double>(i);
  Kokkos::parallel_for("reverse", size, KOKKOS_LAMBDA(int j) { dx(j) = dy(j) * (1 + h * Kokkos::cos(x(j))); });
}

double sum_of(const Vector& v) {
  double sum = 0;
  Kokkos::parallel_reduce("sum", size, KOKKOS_LAMBDA(int j, double& partial) { partial += v(j); }, sum);
  return sum;
}

// The gradient of the sum of the last result with respect to the sum of the first input, along ones.
double gradient(const kformer::RecomputeSchedule& schedule) {
  // [chain]
  const Vector dx = kformer::checkpointed(
      schedule, [] { return Vector("state", size); }, [](const Vector& x) { Kokkos::deep_copy(x, 0.5); }, run,
      [](const Vector&, const Vector& dy) { Kokkos::deep_copy(dy, 1.0); }, reverse);
  // [chain]
  return sum_of(dx) / size;
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  using enum kformer::Recompute;
  const double expected = gradient(kformer::RecomputeSchedule::uniform(none, steps));
  for (const std::int64_t slots : {1, 2, 3, 6}) {
    const double got = gradient(kformer::RecomputeSchedule::uniform(nested, steps, slots));
    std::printf("%2ld inputs kept, %2ld steps repeated: %.15f\n", static_cast<long>(slots),
                static_cast<long>(kformer::revolve_forwards(steps, slots)), got);
    if (got != expected) return 1;
  }
  // [plan]
  const std::vector<kformer::RecomputePlan> front =
      kformer::recompute_front(steps, {.input_bytes = 8 * size,
                                       .none_bytes = 64 * size,
                                       .pointwise_bytes = 40 * size,
                                       .working_bytes = 40 * size,
                                       .pointwise_seconds = 1e-3,
                                       .forward_seconds = 9e-3});
  const kformer::RecomputePlan& plan = kformer::best_plan(front, 300 * size);
  // [plan]
  std::printf("in %d bytes: %lu bytes, %.3f s more\n", 300 * size, static_cast<unsigned long>(plan.bytes),
              plan.seconds);
  return plan.bytes <= 300 * size ? 0 : 1;
}
