// SPDX-License-Identifier: MIT
// The feed-forward block of Llama, y = (silu(x W_gateᵀ) ∘ x W_upᵀ) W_downᵀ, on weights of your own, forward and
// backward. Checks dW_down, because y is linear in W_down, and dx by a finite difference.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "dot.hpp"
#include "kformer/model/swiglu_mlp.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<double**, Kokkos::LayoutRight>;

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const int rows = 24, hidden = 64, intermediate = 160;
  const Matrix x("x", rows, hidden), y("y", rows, hidden), dy("dy", rows, hidden), dx("dx", rows, hidden);
  const Matrix w_gate("w_gate", intermediate, hidden), w_up("w_up", intermediate, hidden);
  const Matrix w_down("w_down", hidden, intermediate), dw_down("dw_down", hidden, intermediate);
  const Matrix dw_gate("dw_gate", intermediate, hidden), dw_up("dw_up", intermediate, hidden);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const Matrix& view : {x, dy, w_gate, w_up, w_down}) Kokkos::fill_random(view, random, -0.5, 0.5);

  // [mlp]
  const auto ledger = kformer::Ledger::create();
  kformer::SwigluMlp<Exec, double> mlp({.hidden_size = hidden, .intermediate_size = intermediate}, rows,
                                       {.gate = w_gate, .up = w_up, .down = w_down}, *ledger);
  mlp.forward(exec, x, y);
  mlp.backward(exec, x, dy, dx, {.gate = dw_gate, .up = dw_up, .down = dw_down});
  // [mlp]

  const double gradient = dot(dw_down, w_down), expected = dot(dy, y);
  const double h = 1e-6, before = dot(dy, y), along = dot(dx, dy);
  Kokkos::parallel_for("step", x.size(), KOKKOS_LAMBDA(int i) { x.data()[i] += h * dy.data()[i]; });
  mlp.forward(exec, x, y);
  const double slope = (dot(dy, y) - before) / h;
  std::printf("along W_down: %.9f, expected %.9f; along x: %.6f, finite difference %.6f\n", gradient, expected,
              along, slope);
  return std::abs(gradient - expected) < 1e-9 && std::abs(along - slope) < 1e-3 ? 0 : 1;
}
