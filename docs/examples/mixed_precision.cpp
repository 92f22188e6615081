// SPDX-License-Identifier: MIT
// One layer in 16 bits learns to do nothing: y = x. Float master weights, and a loss scale that adapts itself.
// Checks that the error falls and that the scale was found.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cstdio>

#include "kformer/model/decoder_layer.hpp"
#include "kformer/train/optimizer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using kformer::f16;
using Matrix = Kokkos::View<f16**, Kokkos::LayoutRight>;

void fill(f16* to, std::size_t size, float range) {
  const Kokkos::View<float*> wide("wide", size);
  Kokkos::fill_random(wide, Kokkos::Random_XorShift64_Pool<Exec>(size), -range, range);
  Kokkos::parallel_for("round", size, KOKKOS_LAMBDA(int i) { to[i] = f16(wide(i)); });
}

// dy = scale · ∂L/∂y of the loss L = ½ Σ (y − x)²; returns L.
float squared_error(const Matrix& x, const Matrix& y, const Matrix& dy, float scale) {
  float loss = 0;
  Kokkos::parallel_reduce(
      "squared_error", Kokkos::MDRangePolicy<Exec, Kokkos::Rank<2>>({0, 0}, {x.extent(0), x.extent(1)}),
      KOKKOS_LAMBDA(int i, int j, float& sum) {
        const float error = static_cast<float>(y(i, j)) - static_cast<float>(x(i, j));
        sum += error * error / 2;
        dy(i, j) = f16(scale * error);
      },
      loss);
  return loss;
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const auto ledger = kformer::Ledger::create();
  const kformer::LlamaConfig config{.hidden_size = 64,
                                    .intermediate_size = 128,
                                    .num_attention_heads = 4,
                                    .num_key_value_heads = 2,
                                    .head_dim = 16};
  const int rows = 2 * 32;
  const Matrix x("x", rows, 64), y("y", rows, 64), dy("dy", rows, 64), dx("dx", rows, 64);
  fill(x.data(), x.size(), 1);

  // [step]
  kformer::DecoderLayer<Exec, f16> layer(config, {.batch = 2, .seq_len = 32}, {}, *ledger);
  for (const auto& p : layer.parameters()) fill(static_cast<f16*>(p.weight.data), p.weight.size(), 0.2f);
  layer.prepare(exec);
  kformer::Optimizer<Exec, f16> optimizer(layer.parameters(), {.loss_scaling = kformer::LossScaling{}},
                                          *ledger);
  optimizer.prepare(exec);
  float first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    layer.zero_gradients(exec);
    layer.forward(exec, x, y);
    last = squared_error(x, y, dy, static_cast<float>(optimizer.scaler().scale()));
    if (step == 0) first = last;
    layer.backward(exec, x, dy, dx);
    const bool counted = optimizer.step(exec, 1e-2);
    if (!counted) std::printf("step %d: gradients are not finite, the loss scale is halved\n", step);
  }
  // [step]

  std::printf("error %.3f -> %.3f, %d steps skipped, loss scale %g\n", first, last,
              static_cast<int>(optimizer.skipped_steps()), optimizer.scaler().scale());
  return last < 0.2f * first && optimizer.steps() > 80 ? 0 : 1;
}
