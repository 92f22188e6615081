// SPDX-License-Identifier: MIT
// Cross attention on weights of your own: queries from x, keys and values from a context. Checks that the order of
// the context does not matter, and the gradients: y is linear in W_o, so that Σ dW_o ∘ W_o is Σ dy ∘ y.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "dot.hpp"
#include "kformer/model/multi_head_attention.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<double**, Kokkos::LayoutRight>;

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const int length = 10, context_length = 33, hidden = 64, context_size = 48;
  const Matrix x("x", length, hidden), context("context", context_length, context_size), y("y", length, hidden);
  const Matrix w_q("w_q", hidden, hidden), w_k("w_k", hidden, context_size), w_v("w_v", hidden, context_size);
  const Matrix w_o("w_o", hidden, hidden), dy("dy", length, hidden), dx("dx", length, hidden);
  const Matrix dcontext("dcontext", context_length, context_size), dw_q("dw_q", hidden, hidden);
  const Matrix dw_k("dw_k", hidden, context_size), dw_v("dw_v", hidden, context_size),
      dw_o("dw_o", hidden, hidden);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const Matrix& view : {x, context, w_q, w_k, w_v, w_o, dy}) Kokkos::fill_random(view, random, -0.5, 0.5);

  // [module]
  const auto ledger = kformer::Ledger::create();
  kformer::MultiHeadAttention<Exec, double> attention(
      {.hidden_size = hidden, .num_attention_heads = 4, .context_size = context_size},
      {.batch = 1, .seq_len = length, .context_len = context_length}, {.q = w_q, .k = w_k, .v = w_v, .o = w_o},
      *ledger);
  attention.forward(exec, x, context, y);
  attention.backward(exec, {.x = x,
                            .context = context,
                            .dy = dy,
                            .dx = dx,
                            .dcontext = dcontext,
                            .gradients = {.q = dw_q, .k = dw_k, .v = dw_v, .o = dw_o}});
  // [module]
  const double gradient = dot(dw_o, w_o), expected = dot(dy, y);

  const Matrix reversed("reversed", context_length, context_size), again("again", length, hidden);
  for (int i = 0; i < context_length; ++i)
    Kokkos::deep_copy(exec, Kokkos::subview(reversed, context_length - 1 - i, Kokkos::ALL),
                      Kokkos::subview(context, i, Kokkos::ALL));
  attention.forward(exec, x, reversed, again);
  const double change = std::abs(dot(again, again) - dot(y, y));
  std::printf("along W_o: %.9f, expected %.9f; reversed context changes |y|² by %.1e\n", gradient, expected,
              change);
  return std::abs(gradient - expected) < 1e-9 && change < 1e-9 && dot(y, y) > 0 ? 0 : 1;
}
