// SPDX-License-Identifier: MIT
// The calls on the pages of attention, standard_attention and kv_cache. Checks them against each other: two
// algorithms, and a cache that sees a text token by token, give the same numbers.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/kformer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Heads = Kokkos::View<float****, Kokkos::LayoutRight>;

const int batch = 1, length = 40, q_heads = 4, kv_heads = 2, head_dim = 32;

double difference(const Heads& a, const Heads& b) {
  const float *x = a.data(), *y = b.data();
  double largest = 0;
  Kokkos::parallel_reduce(
      "difference", a.size(),
      KOKKOS_LAMBDA(int i, double& d) { d = Kokkos::max(d, double(Kokkos::abs(x[i] - y[i]))); },
      Kokkos::Max<double>(largest));
  return largest;
}

// [functor]
struct SameDocument {
  Kokkos::View<const int*> document;
  KOKKOS_FUNCTION bool operator()(kformer::AttentionIndex at) const {
    return document(at.query) == document(at.key);
  }
};
// [functor]

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const Heads q("q", batch, length, q_heads, head_dim), k("k", batch, length, kv_heads, head_dim);
  const Heads v("v", batch, length, kv_heads, head_dim), out("out", batch, length, q_heads, head_dim);
  const Heads other("other", batch, length, q_heads, head_dim), dout("dout", batch, length, q_heads, head_dim);
  const Heads dq("dq", batch, length, q_heads, head_dim), dk("dk", batch, length, kv_heads, head_dim);
  const Heads dv("dv", batch, length, kv_heads, head_dim), bias("bias", 1, q_heads, length, length);
  const Heads dbias("dbias", 1, q_heads, length, length);
  const Kokkos::View<float*> sinks("sinks", q_heads), dsinks("dsinks", q_heads);
  const Kokkos::View<float***, Kokkos::LayoutRight> lse("lse", batch, q_heads, length);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const Heads& view : {q, k, v, dout, bias}) Kokkos::fill_random(view, random, -1.0f, 1.0f);

  // [extras]
  const kformer::AttentionOptions options{.causal = true};
  const auto extras = kformer::AttentionExtras<Exec>().bias(bias).sinks(sinks);
  kformer::attention_forward(exec, q, k, v, out, lse, options, extras);

  const auto gradients = kformer::AttentionExtraGradients<Exec>().bias(dbias).sinks(dsinks);
  const kformer::AttentionShape shape{
      kformer::DType::f32, batch, length, length, q_heads, kv_heads, head_dim, head_dim};
  const Kokkos::View<std::byte*> workspace(
      "workspace", kformer::attention_backward_workspace_bytes(exec, shape, options, extras, gradients));
  kformer::attention_backward(
      exec,
      kformer::AttentionBackwardOperands{
          .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout, .dq = dq, .dk = dk, .dv = dv},
      options, extras, gradients, workspace);
  // [extras]
  // Softmax does not see what is added to all scores of a query, the sink's included.
  double all = 0;
  const float *db = dbias.data(), *ds = dsinks.data();
  Kokkos::parallel_reduce(
      "sum", dbias.size(),
      KOKKOS_LAMBDA(int i, double& partial) { partial += db[i] + (i < q_heads ? ds[i] : 0.0f); }, all);
  std::printf("sum of the gradients of bias and sinks: %.1e\n", all);

  kformer::attention_forward(exec, q, k, v, out, lse, options);
  // [standard]
  const Heads probabilities("probabilities", batch, q_heads, length, length);
  kformer::standard_attention_forward(exec, q, k, v, other, probabilities, {.causal = true});
  // [standard]
  const double algorithms = difference(out, other);
  std::printf("flash against standard: %.1e\n", algorithms);

  const kformer::LlamaConfig config{.hidden_size = q_heads * head_dim,
                                    .intermediate_size = 64,
                                    .num_attention_heads = q_heads,
                                    .num_key_value_heads = kv_heads,
                                    .head_dim = head_dim};
  const auto ledger = kformer::Ledger::create();
  // [kv_cache]
  const auto cache = kformer::KvCache<Exec, float>::create(
      config, {.kind = kformer::KvCacheKind::paged, .num_layers = 1, .capacity = length, .max_step_tokens = 16},
      *ledger);
  for (int first = 0; first < length; first += 8) {
    const std::int64_t new_tokens[] = {8};  // of each sequence
    const auto part = [&](const Heads& all_tokens) {
      return Kokkos::subview(all_tokens, 0, std::pair(first, first + 8), Kokkos::ALL, Kokkos::ALL);
    };
    cache->begin_step(exec, new_tokens);
    cache->attend(exec, 0, part(q), part(k), part(v), part(other));  // layer 0
    cache->end_step(exec);
  }
  // [kv_cache]
  const double steps = difference(out, other);
  std::printf("a cache, 8 tokens at a time, against the whole text: %.1e\n", steps);

  const Kokkos::View<int*> document("document", length);  // one document: nothing is hidden
  // [call]
  kformer::attention_forward(exec, q, k, v, other, lse, SameDocument{document}, options);
  // [call]
  const double functor = difference(out, other);
  std::printf("a mask that hides nothing: %.1e\n", functor);
  return std::abs(all) < 1e-4 && algorithms < 1e-5 && steps < 1e-5 && functor < 1e-5 ? 0 : 1;
}
