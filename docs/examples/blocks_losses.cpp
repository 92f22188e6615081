// SPDX-License-Identifier: MIT
// The calls on the pages of cross_entropy, linear_cross_entropy, adamw and sampling. Checks the loss against log V,
// the loss in chunks against the loss in one, and that a step of AdamW lowers it.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/kformer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;
using Vector = Kokkos::View<float*>;
using Tokens = Kokkos::View<int*>;

const int rows = 32, hidden = 48, vocabulary = 200;

double sum(const Vector& v) {
  double all = 0;
  Kokkos::parallel_reduce("sum", v.size(), KOKKOS_LAMBDA(int i, double& partial) { partial += v(i); }, all);
  return all;
}

bool check(const char* what, double value, double expected) {
  const bool good = std::abs(value - expected) <= 1e-4 * (1 + std::abs(expected));
  std::printf("%-24s %12.6f  expected %12.6f%s\n", what, value, expected, good ? "" : "  WRONG");
  return good;
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const Kokkos::Random_XorShift64_Pool<> random(1);
  const Matrix x("x", rows, hidden), weight("weight", vocabulary, hidden), logits("logits", rows, vocabulary);
  const Matrix dx("dx", rows, hidden), dweight("dweight", vocabulary, hidden);
  const Vector loss("loss", rows), lse("lse", rows), dloss("dloss", rows), again("again", rows);
  const Tokens targets("targets", rows);
  Kokkos::fill_random(targets, random, 0, vocabulary);
  Kokkos::fill_random(x, random, -1.0f, 1.0f);

  // All logits are 0: every token has the probability 1 / V.
  kformer::linear_forward(exec, x, weight, logits);
  // [cross_entropy]
  kformer::cross_entropy_forward(exec, logits, targets, loss, lse);
  Kokkos::deep_copy(exec, dloss, 1.0f / rows);
  kformer::cross_entropy_backward(exec, logits, targets, lse, dloss, logits);  // logits become their gradient
  // [cross_entropy]
  if (!check("cross_entropy", sum(loss) / rows, std::log(vocabulary))) return 1;

  Kokkos::fill_random(weight, random, -1.0f, 1.0f);
  kformer::linear_forward(exec, x, weight, logits);
  kformer::cross_entropy_forward(exec, logits, targets, again, lse);
  // [linear_cross_entropy]
  const kformer::LinearCrossEntropyOptions options{.chunk_rows = 10};
  const Kokkos::View<std::byte*> workspace(
      "workspace", kformer::linear_cross_entropy_workspace_bytes<float>(exec, rows, vocabulary, options));
  const auto loss_and_gradients = [&] {
    kformer::linear_cross_entropy(exec,
                                  kformer::LinearCrossEntropyOperands{.x = x,
                                                                      .weight = weight,
                                                                      .targets = targets,
                                                                      .dloss = dloss,
                                                                      .loss = loss,
                                                                      .dx = dx,
                                                                      .dweight = dweight},
                                  options, workspace);
  };
  // [linear_cross_entropy]
  loss_and_gradients();
  if (!check("linear_cross_entropy", sum(loss), sum(again))) return 1;

  const Matrix m("m", vocabulary, hidden), v("v", vocabulary, hidden);
  // [adamw]
  const kformer::AdamWParameter parameter{.weight = kformer::tensor_ref(weight),
                                          .gradient = kformer::tensor_ref(dweight),
                                          .m = kformer::tensor_ref(m),
                                          .v = kformer::tensor_ref(v)};
  for (int step = 1; step <= 20; ++step) {
    Kokkos::deep_copy(exec, dweight, 0.0f);
    loss_and_gradients();
    kformer::adamw(exec, std::span(&parameter, 1), {.learning_rate = 0.1, .step = step});
  }
  // [adamw]
  std::printf("after 20 steps of adamw  %12.6f  before   %12.6f\n", sum(loss) / rows, sum(again) / rows);
  if (sum(loss) > 0.2 * sum(again)) return 1;

  const Tokens positions("positions", rows), tokens("tokens", rows);
  const Vector log_probabilities("log_probabilities", rows);
  kformer::linear_forward(exec, x, weight, logits);
  // [sampling]
  const kformer::SamplingOptions sampling{.temperature = 0.8, .top_k = 1, .top_p = 0.95, .seed = 42};
  const Kokkos::View<std::byte*> scratch(
      "scratch", kformer::sample_workspace_bytes<float>(exec, rows, vocabulary, false, sampling));
  kformer::sample(exec, logits, positions, tokens, log_probabilities, sampling, scratch);
  // [sampling]
  // With top_k = 1 it is the target, which the model now knows by heart.
  int right = 0;
  Kokkos::parallel_reduce("count", rows, KOKKOS_LAMBDA(int i, int& n) { n += tokens(i) == targets(i); }, right);
  std::printf("sample: %d of %d tokens are those it learned\n", right, rows);
  return right > 0.9 * rows ? 0 : 1;
}
