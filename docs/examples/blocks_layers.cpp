// SPDX-License-Identifier: MIT
// The calls on the pages of linear, linear_epilogues, lora, rms_norm, rope, swiglu and embedding. Checks what must hold
// whatever the numbers are.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <array>
#include <cmath>
#include <cstdio>

#include "dot.hpp"
#include "kformer/kformer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;
using Vector = Kokkos::View<float*>;

const int rows = 12, hidden = 64, out = 96;

template <class V>
V random(V view) {
  Kokkos::fill_random(view, Kokkos::Random_XorShift64_Pool<>(view.size()), -1.0f, 1.0f);
  return view;
}

bool check(const char* what, double value, double expected) {
  const bool good = std::abs(value - expected) <= 1e-4 * (1 + std::abs(expected));
  std::printf("%-24s %12.6f  expected %12.6f%s\n", what, value, expected, good ? "" : "  WRONG");
  return good;
}

// y is linear in x and in the weight: both gradients, times what they are of, give Σ dy ∘ y.
bool linear(const Exec& exec) {
  const Matrix x = random(Matrix("x", rows, hidden)), weight = random(Matrix("weight", out, hidden));
  const Matrix y("y", rows, out), dy = random(Matrix("dy", rows, out));
  const Matrix dx("dx", rows, hidden), dweight("dweight", out, hidden);
  // [linear]
  kformer::linear_forward(exec, x, weight, y);                 // y = x Wᵀ
  kformer::linear_residual_forward(exec, x, weight, y, y);     // y += x Wᵀ
  kformer::linear_backward(exec, x, weight, dy, dx, dweight);  // dx = dy W, dweight += dyᵀ x
  // [linear]
  return check("linear, dx", 2 * dot(dx, x), dot(dy, y)) &&
         check("linear, dweight", 2 * dot(dweight, weight), dot(dy, y));
}

// y is linear in x too, whatever the adapter.
bool lora(const Exec& exec) {
  const int rank = 4;
  const Matrix x = random(Matrix("x", rows, hidden)), weight = random(Matrix("weight", out, hidden));
  const Matrix a = random(Matrix("a", rank, hidden)), b = random(Matrix("b", out, rank));
  const Matrix y("y", rows, out), dy = random(Matrix("dy", rows, out)), dx("dx", rows, hidden);
  const Matrix xa("xa", rows, rank), dxa("dxa", rows, rank), da("da", rank, hidden), db("db", out, rank);
  // [lora]
  const std::array parts{kformer::LoraPart{.b = b, .column = 0, .scale = 2.0}};
  kformer::lora_forward(
      exec, kformer::LoraForwardOperands{.x = x, .weight = weight, .a = a, .parts = parts, .xa = xa, .y = y});
  kformer::lora_backward_input(exec,
                               kformer::LoraBackwardInputOperands{
                                   .weight = weight, .a = a, .parts = parts, .dy = dy, .dxa = dxa, .dx = dx});
  kformer::linear_backward_weight(exec, x, dxa, da);  // dA += dxaᵀ x
  kformer::linear_backward_weight(exec, xa, dy, db);  // dB += dyᵀ xa
  // [lora]
  return check("lora, dx", dot(dx, x), dot(dy, y)) && check("lora, dA and dB", dot(da, a), dot(db, b));
}

// Rows of any scale have the same norm: the gradient is orthogonal to the row.
bool rms_norm(const Exec& exec) {
  const Matrix x = random(Matrix("x", rows, hidden)), y("y", rows, hidden), dx("dx", rows, hidden);
  const Matrix dy = random(Matrix("dy", rows, hidden));
  const Vector weight = random(Vector("weight", hidden)), rstd("rstd", rows), dweight("dweight", hidden);
  // [rms_norm]
  kformer::rms_norm_forward(exec, x, weight, y, rstd, {.eps = 0});  // keep x and rstd for backward

  const auto bytes = kformer::rms_norm_backward_workspace_bytes<float>(exec, rows, hidden);
  const Kokkos::View<std::byte*> workspace("workspace", bytes);
  kformer::rms_norm_backward(
      exec,
      kformer::RmsNormBackwardOperands{
          .x = x, .weight = weight, .rstd = rstd, .dy = dy, .dx = dx, .dweight = dweight},
      workspace);
  // [rms_norm]
  return check("rms_norm, dx", dot(dx, x), 0) && check("rms_norm, dweight", dot(dweight, weight), dot(dy, y));
}

// A rotation keeps the length; its gradient is the rotation back.
bool rope(const Exec& exec) {
  const int length = rows, heads = 2, head_dim = 16;
  using Heads = Kokkos::View<float****, Kokkos::LayoutRight>;
  const Heads q = random(Heads("q", 1, length, heads, head_dim)),
              k = random(Heads("k", 1, length, heads, head_dim));
  const double before = dot(q, q);
  // [rope]
  const kformer::RopeOptions options{.theta = 500000, .scaling = {.rope_type = kformer::RopeType::llama3}};
  const Matrix cos("cos", 4096, head_dim / 2), sin("sin", 4096, head_dim / 2);
  kformer::rope_tables(exec, cos, sin, options);
  kformer::rope_forward(exec, q, k, cos, sin, 100, options.layout);  // the first token stands at position 100
  // [rope]
  return check("rope", dot(q, q), before);
}

// silu(g)·u with g = 0 is 0; the fused product gives what the parts give.
bool swiglu(const Exec& exec) {
  const Matrix x = random(Matrix("x", rows, hidden)),
               weight_gate_up = random(Matrix("weight", 2 * out, hidden));
  const Matrix gate_up("gate_up", rows, 2 * out), product("product", rows, out), y("y", rows, out);
  // [linear_epilogues]
  kformer::linear_swiglu_forward(exec, x, weight_gate_up, gate_up, product);
  // [linear_epilogues]
  // [swiglu]
  const auto gate = Kokkos::subview(gate_up, Kokkos::ALL, std::pair(0, out));
  const auto up = Kokkos::subview(gate_up, Kokkos::ALL, std::pair(out, 2 * out));
  kformer::swiglu_forward(exec, gate, up, y);
  // [swiglu]
  return check("swiglu", dot(y, y), dot(product, product)) && dot(y, y) > 0;
}

// Every row of y is a row of the table, so that Σ dtable ∘ table is Σ dy ∘ y.
bool embedding(const Exec& exec) {
  const Matrix table = random(Matrix("table", 100, hidden)), dtable("dtable", 100, hidden);
  const Matrix y("y", rows, hidden), dy = random(Matrix("dy", rows, hidden));
  const Kokkos::View<int*> ids("ids", rows);
  Kokkos::fill_random(ids, Kokkos::Random_XorShift64_Pool<>(1), 0, 100);
  // [embedding]
  kformer::embedding_forward(exec, ids, table, y);
  kformer::embedding_backward(exec, ids, dy, dtable);
  // [embedding]
  return check("embedding", dot(dtable, table), dot(dy, y));
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const bool good[] = {linear(exec), lora(exec), rms_norm(exec), rope(exec), swiglu(exec), embedding(exec)};
  for (const bool one : good)
    if (!one) return 1;
  return 0;
}
