// SPDX-License-Identifier: MIT
// An attention module on weights of your own: causal self-attention, then cross-attention to a context, forward
// and backward. Checks the gradients: y is linear in W_o, so that Σ dW_o ∘ W_o is Σ dy ∘ y.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "dot.hpp"
#include "kformer/model/multi_head_attention.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const int batch = 2, length = 10, context_length = 33, hidden = 64;
  const Matrix x("x", batch * length, hidden), context("context", batch * context_length, hidden);
  const Matrix y("y", batch * length, hidden), dy("dy", batch * length, hidden),
      dx("dx", batch * length, hidden);
  const Matrix dcontext("dcontext", batch * context_length, hidden);
  const Matrix w_q("w_q", hidden, hidden), w_k("w_k", hidden, hidden), w_v("w_v", hidden, hidden),
      w_o("w_o", hidden, hidden);
  const Matrix dw_q("dw_q", hidden, hidden), dw_k("dw_k", hidden, hidden), dw_v("dw_v", hidden, hidden),
      dw_o("dw_o", hidden, hidden);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const Matrix& view : {x, context, dy, w_q, w_k, w_v, w_o})
    Kokkos::fill_random(view, random, -0.5f, 0.5f);
  const auto ledger = kformer::Ledger::create();

  // [self]
  kformer::MultiHeadAttention<Exec, float> attention(
      {.hidden_size = hidden, .num_attention_heads = 4, .attention = {.causal = true}}, {batch, length},
      {.q = w_q, .k = w_k, .v = w_v, .o = w_o}, *ledger);
  attention.forward(exec, x, y);
  attention.backward(exec, x, dy, dx, {.q = dw_q, .k = dw_k, .v = dw_v, .o = dw_o});
  // [self]
  const double self = dot(dw_o, w_o), self_expected = dot(dy, y);

  Kokkos::deep_copy(exec, dw_o, 0.0f);  // gradients of weights accumulate
  // [cross]
  kformer::MultiHeadAttention<Exec, float> cross({.hidden_size = hidden, .num_attention_heads = 4},
                                                 {batch, length, context_length},
                                                 {.q = w_q, .k = w_k, .v = w_v, .o = w_o}, *ledger);
  cross.forward(exec, x, context, y);
  cross.backward(exec, {.x = x,
                        .context = context,
                        .dy = dy,
                        .dx = dx,
                        .dcontext = dcontext,
                        .gradients = {.q = dw_q, .k = dw_k, .v = dw_v, .o = dw_o}});
  // [cross]
  const double other = dot(dw_o, w_o), other_expected = dot(dy, y);

  std::printf("self-attention: %.5f, expected %.5f; cross-attention: %.5f, expected %.5f\n", self,
              self_expected, other, other_expected);
  return std::abs(self - self_expected) < 1e-3 && std::abs(other - other_expected) < 1e-3 ? 0 : 1;
}
