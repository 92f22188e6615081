// SPDX-License-Identifier: MIT
// Trains a small language model to write a sequence of digits backwards. Checks it on sequences it never saw.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/core/view_of.hpp"
#include "kformer/model/llama_model.hpp"
#include "kformer/train/optimizer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Random = Kokkos::Random_XorShift64_Pool<Exec>;
using Tokens = Kokkos::View<int*>;
constexpr int digits = 6, batch = 64, length = 2 * digits, vocabulary = 11, equals = 10, ignored = -100;

// "3 1 4 =" is followed by "4 1 3"; the digits before = are no targets.
void draw(const Random& random, const Tokens& ids, const Tokens& targets) {
  Kokkos::parallel_for(
      "draw", batch, KOKKOS_LAMBDA(int sequence) {
        auto generator = random.get_state();
        int text[length + 1];
        text[digits] = equals;
        for (int i = 0; i < digits; ++i) text[i] = text[length - i] = generator.rand(10);
        for (int i = 0; i < length; ++i) {
          ids(sequence * length + i) = text[i];
          targets(sequence * length + i) = i < digits ? ignored : text[i + 1];
        }
        random.free_state(generator);
      });
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const auto ledger = kformer::Ledger::create();
  // [model]
  const kformer::LlamaConfig config{.hidden_size = 64,
                                    .intermediate_size = 128,
                                    .num_attention_heads = 4,
                                    .num_key_value_heads = 4,
                                    .head_dim = 16,
                                    .num_hidden_layers = 2,
                                    .vocab_size = vocabulary};
  kformer::LlamaModel<Exec, float> model(config, {batch, length}, {}, *ledger);
  const Random random(1);
  for (const kformer::Parameter& p : model.parameters()) {
    if (p.weight.rank == 1)
      Kokkos::deep_copy(exec, kformer::view_of<float*>(p.weight), 1.0f);  // the norms
    else
      Kokkos::fill_random(kformer::view_of<float**>(p.weight), random, -0.15f, 0.15f);
  }
  model.prepare(exec);
  kformer::Optimizer<Exec, float> optimizer(model.parameters(), {.max_norm = 1}, *ledger);
  optimizer.prepare(exec);
  // [model]

  const Tokens ids("ids", batch * length), targets("targets", batch * length);
  const Kokkos::View<float*> loss("loss", batch * length), dloss("dloss", batch * length);
  Kokkos::deep_copy(dloss, 1.0f / (batch * digits));
  // [loop]
  for (int step = 1; step <= 300; ++step) {
    draw(random, ids, targets);
    model.zero_gradients(exec);
    model.forward(exec, ids);
    model.backward(exec, ids, targets, dloss, loss);
    if (!optimizer.step(exec, 3e-3)) return 1;  // gradients that are not finite
  }
  // [loop]

  draw(random, ids, targets);
  model.forward(exec, ids);
  model.loss(exec, targets, loss);
  float sum = 0;
  Kokkos::parallel_reduce(
      "sum", loss.size(), KOKKOS_LAMBDA(int i, float& partial) { partial += loss(i); }, sum);
  std::printf("loss per digit: %.4f; of guesses %.4f\n", sum / (batch * digits), std::log(10.0));
  return sum / (batch * digits) < 0.05 ? 0 : 1;
}
