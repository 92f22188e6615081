// SPDX-License-Identifier: MIT
// Flash attention, forward and backward, on Views of your own. Checks the gradient by a finite difference:
// a change of the scale of the scores is a change of q.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "dot.hpp"
#include "kformer/ops/attention.hpp"

using View4 = Kokkos::View<double****, Kokkos::LayoutRight>;

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Kokkos::DefaultExecutionSpace exec;

  // [operands]
  // Eight query heads share two heads of keys and values.
  const int batch = 2, length = 96, q_heads = 8, kv_heads = 2, head_dim = 32;
  const View4 q("q", batch, length, q_heads, head_dim), k("k", batch, length, kv_heads, head_dim);
  const View4 v("v", batch, length, kv_heads, head_dim), out("out", batch, length, q_heads, head_dim);
  const Kokkos::View<double***, Kokkos::LayoutRight> lse("lse", batch, q_heads, length);
  const View4 dout("dout", batch, length, q_heads, head_dim), dq("dq", batch, length, q_heads, head_dim);
  const View4 dk("dk", batch, length, kv_heads, head_dim), dv("dv", batch, length, kv_heads, head_dim);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const View4& view : {q, k, v, dout}) Kokkos::fill_random(view, random, -1.0, 1.0);
  // [operands]

  // [calls]
  const kformer::AttentionOptions options{.causal = true};
  kformer::attention_forward(exec, q, k, v, out, lse, options);

  const kformer::AttentionShape shape{
      kformer::DType::f64, batch, length, length, q_heads, kv_heads, head_dim, head_dim};
  const Kokkos::View<char*> workspace("workspace",
                                      kformer::attention_backward_workspace_bytes(exec, shape, options));
  kformer::attention_backward(
      exec,
      kformer::AttentionBackwardOperands{
          .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv},
      options, {}, {}, workspace);
  // [calls]

  // The loss Σ dout ∘ out, with scores of another scale.
  const auto loss = [&](double factor) {
    kformer::attention_forward(exec, q, k, v, out, lse,
                               {.scale = factor / std::sqrt(head_dim), .causal = true});
    return dot(dout, out);
  };
  const double h = 1e-4, slope = (loss(1 + h) - loss(1 - h)) / (2 * h), gradient = dot(dq, q);
  std::printf("derivative along q: %.9f by backward, %.9f by a finite difference\n", gradient, slope);
  return std::abs(gradient - slope) < 1e-6 ? 0 : 1;
}
