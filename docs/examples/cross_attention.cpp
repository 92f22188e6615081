// SPDX-License-Identifier: MIT
// Cross attention: the queries come from x, keys and values from a context of another length. Checks that the
// order of the context does not matter.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/ops/attention.hpp"
#include "kformer/ops/linear.hpp"

using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;
using Heads = Kokkos::View<float****, Kokkos::LayoutRight>;

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Kokkos::DefaultExecutionSpace exec;
  const int length = 10, context_length = 33, heads = 4, head_dim = 16, hidden = heads * head_dim;
  const Matrix x("x", length, hidden), context("context", context_length, hidden);
  const Matrix reversed("reversed", context_length, hidden);
  const Matrix w_q("w_q", hidden, hidden), w_k("w_k", hidden, hidden), w_v("w_v", hidden, hidden);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const Matrix& view : {x, context, w_q, w_k, w_v}) Kokkos::fill_random(view, random, -0.5f, 0.5f);
  for (int i = 0; i < context_length; ++i)
    Kokkos::deep_copy(exec, Kokkos::subview(reversed, context_length - 1 - i, Kokkos::ALL),
                      Kokkos::subview(context, i, Kokkos::ALL));

  // [block]
  // Projections write matrices; attention reads the same memory as heads.
  const Matrix q("q", length, hidden), k("k", context_length, hidden), v("v", context_length, hidden);
  const auto as_heads = [](const Matrix& m) { return Heads(m.data(), 1, m.extent(0), heads, head_dim); };
  const auto cross_attention = [&](const Matrix& from, const Matrix& out) {
    const Kokkos::View<float***, Kokkos::LayoutRight> lse("lse", 1, heads, length);
    kformer::linear_forward(exec, x, w_q, q);
    kformer::linear_forward(exec, from, w_k, k);
    kformer::linear_forward(exec, from, w_v, v);
    kformer::attention_forward(exec, as_heads(q), as_heads(k), as_heads(v), as_heads(out), lse);
    exec.fence();
  };
  // [block]

  const Matrix out("out", length, hidden), again("again", length, hidden);
  cross_attention(context, out);
  cross_attention(reversed, again);
  float difference = 0, largest = 0;
  Kokkos::parallel_reduce(
      "compare", out.size(),
      KOKKOS_LAMBDA(int i, float& d, float& l) {
        d = Kokkos::max(d, Kokkos::abs(out.data()[i] - again.data()[i]));
        l = Kokkos::max(l, Kokkos::abs(out.data()[i]));
      },
      Kokkos::Max<float>(difference), Kokkos::Max<float>(largest));
  std::printf("largest output %.4f, changed by %.1e when the context is reversed\n", largest, difference);
  return largest > 0.01f && difference < 1e-5f ? 0 : 1;
}
