// SPDX-License-Identifier: MIT
// The feed-forward block of Llama, y = (silu(x W_gateᵀ) ∘ x W_upᵀ) W_downᵀ, forward and backward. Checks the
// gradient: y is linear in W_down, so that Σ dW_down ∘ W_down is Σ dy ∘ y.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/ops/swiglu_mlp.hpp"

using Matrix = Kokkos::View<double**, Kokkos::LayoutRight>;

double dot(const Matrix& a, const Matrix& b) {
  const double *x = a.data(), *y = b.data();
  double sum = 0;
  Kokkos::parallel_reduce(
      "dot", a.size(), KOKKOS_LAMBDA(int i, double& partial) { partial += x[i] * y[i]; }, sum);
  return sum;
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Kokkos::DefaultExecutionSpace exec;
  const int rows = 24, hidden = 64, intermediate = 160;

  // [mlp]
  const Matrix x("x", rows, hidden), y("y", rows, hidden), dy("dy", rows, hidden), dx("dx", rows, hidden);
  // The rows of W_gate come first, those of W_up follow.
  const Matrix w_gate_up("w_gate_up", 2 * intermediate, hidden), w_down("w_down", hidden, intermediate);
  const Matrix dw_gate_up("dw_gate_up", 2 * intermediate, hidden), dw_down("dw_down", hidden, intermediate);
  const Matrix gate_up("gate_up", rows, 2 * intermediate), product("product", rows, intermediate);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const Matrix& view : {x, dy, w_gate_up, w_down}) Kokkos::fill_random(view, random, -0.5, 0.5);

  const kformer::SwigluMlpForwardOperands forward{.x = x,
                                                  .weight_gate_up = w_gate_up,
                                                  .weight_down = w_down,
                                                  .gate_up = gate_up,
                                                  .product = product,
                                                  .y = y};
  kformer::swiglu_mlp_forward(exec, forward);
  // The saved arrays may hold the gradients on their way.
  kformer::swiglu_mlp_backward(exec, kformer::SwigluMlpBackwardOperands{.x = x,
                                                                        .weight_gate_up = w_gate_up,
                                                                        .weight_down = w_down,
                                                                        .gate_up = gate_up,
                                                                        .product = product,
                                                                        .dy = dy,
                                                                        .dproduct = product,
                                                                        .dgate_up = gate_up,
                                                                        .dx = dx,
                                                                        .dweight_gate_up = dw_gate_up,
                                                                        .dweight_down = dw_down});
  // [mlp]

  const double linear = dot(dw_down, w_down), expected = dot(dy, y);
  // A step along x, to see dx.
  const double h = 1e-6, before = dot(dy, y), along = dot(dx, dy);
  Kokkos::parallel_for("step", x.size(), KOKKOS_LAMBDA(int i) { x.data()[i] += h * dy.data()[i]; });
  kformer::swiglu_mlp_forward(exec, forward);
  const double slope = (dot(dy, y) - before) / h;
  std::printf("along W_down: %.9f, expected %.9f; along dx: %.6f, finite difference %.6f\n", linear, expected,
              along, slope);
  return std::abs(linear - expected) < 1e-9 && std::abs(along - slope) < 1e-3 ? 0 : 1;
}
