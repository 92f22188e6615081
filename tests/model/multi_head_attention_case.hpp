// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/model/multi_head_attention.hpp"
#include "support/every_kernel.hpp"

/// \file
/// A module of multi-head attention with inputs for tests.

namespace kformer::Testing {

/// A module to test, and the tokens it works on.
struct MultiHeadAttentionCase {
  const char* name;
  MultiHeadAttentionConfig config;
  MultiHeadAttentionShape shape;
  bool bias = false, cross = false;
};

/// \copydoc MultiHeadAttentionCase
inline std::vector<MultiHeadAttentionCase> cases() {
  const AttentionOptions causal{.causal = true};
  return {
      {"self, odd sizes", {.hidden_size = 21, .num_attention_heads = 3}, {2, 5}},
      {"causal, grouped heads, biases",
       {.hidden_size = 19,
        .num_attention_heads = 4,
        .num_key_value_heads = 2,
        .head_dim = 5,
        .attention = causal},
       {1, 9},
       true},
      {"window, rotary embedding",
       {.hidden_size = 24,
        .num_attention_heads = 3,
        .attention = {.window = 3},
        .rope = RopeOptions{.theta = 100}},
       {2, 7}},
      {"cross-attention, other lengths and features, biases",
       {.hidden_size = 18, .num_attention_heads = 2, .context_size = 13},
       {2, 5, 11},
       true,
       true},
      {"cross-attention to fewer tokens",
       {.hidden_size = 12, .num_attention_heads = 4},
       {3, 7, 2},
       false,
       true},
  };
}

/// The weights of a module, or their gradients.
template <class S>
struct Projections {
  TestTensor<Exec, S> q, k, v, o, q_bias, k_bias, v_bias, o_bias;
};

/// Calls `f(name, matrix...)` for each matrix of the projections.
template <class F, class... P>
void for_each_matrix(F f, P&... projections) {
  f("q", projections.q...);
  f("k", projections.k...);
  f("v", projections.v...);
  f("o", projections.o...);
}

/// A module, its weights and what goes in and out.
template <class T>
struct Module {
  using C = compute_t<T>;
  using Tensor = TestTensor<Exec, T>;
  using Gradient = TestTensor<Exec, C>;

  MultiHeadAttentionCase c;
  std::mt19937 generator{20261122};
  Projections<T> w;
  Projections<C> d;
  Tensor x, context, y, dy, dx, dcontext;
  std::shared_ptr<Ledger> ledger = Ledger::create();
  MultiHeadAttention<Exec, T> module;

  explicit Module(const MultiHeadAttentionCase& given) : c(complete(given)), module(make()) {
    module.prepare(Exec());
  }

  void forward() {
    if (c.cross)
      module.forward(Exec(), x.template view<2>(), context.template view<2>(), y.template view<2>());
    else
      module.forward(Exec(), x.template view<2>(), y.template view<2>());
    Exec().fence("kformer::Testing::module");
  }
  void backward() {
    if (c.cross)
      module.backward(Exec(), operands());
    else
      module.backward(Exec(), x.template view<2>(), dy.template view<2>(), dx.template view<2>(), gradients());
    Exec().fence("kformer::Testing::module");
  }
  typename MultiHeadAttention<Exec, T>::BackwardOperands operands() const {
    return {x.template view<2>(),  context.template view<2>(),  dy.template view<2>(),
            dx.template view<2>(), dcontext.template view<2>(), gradients()};
  }
  typename MultiHeadAttention<Exec, T>::Gradients gradients() const {
    return views_of<typename MultiHeadAttention<Exec, T>::Gradients>(d);
  }
  typename MultiHeadAttention<Exec, T>::Weights weights() const {
    return views_of<typename MultiHeadAttention<Exec, T>::Weights>(w);
  }

 private:
  template <class Views, class S>
  Views views_of(const Projections<S>& p) const {
    Views all{.q = p.q.template view<2>(),
              .k = p.k.template view<2>(),
              .v = p.v.template view<2>(),
              .o = p.o.template view<2>()};
    if (!c.bias) return all;
    all.q_bias = p.q_bias.template view<1>();
    all.k_bias = p.k_bias.template view<1>();
    all.v_bias = p.v_bias.template view<1>();
    all.o_bias = p.o_bias.template view<1>();
    return all;
  }
  static MultiHeadAttentionCase complete(MultiHeadAttentionCase c) {
    c.config = c.config.checked();
    return c;
  }
  MultiHeadAttention<Exec, T> make() {
    const auto& f = c.config;
    const std::int64_t queries = f.num_attention_heads * f.head_dim, keys = f.num_key_value_heads * f.head_dim;
    const auto random = [&](std::vector<std::int64_t> extents, double scale) {
      return Tensor(extents).random(generator, scale);
    };
    const auto zero = [](std::vector<std::int64_t> extents) {
      return Gradient(extents).fill([](std::size_t) { return C(0); });
    };
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
      return random({rows, columns}, 1 / std::sqrt(static_cast<double>(columns)));
    };
    w.q = matrix(queries, f.hidden_size);
    w.k = matrix(keys, f.context_size);
    w.v = matrix(keys, f.context_size);
    w.o = matrix(f.hidden_size, queries);
    w.q_bias = random({queries}, 0.5);
    w.k_bias = random({keys}, 0.5);
    w.v_bias = random({keys}, 0.5);
    w.o_bias = random({f.hidden_size}, 0.5);
    x = random({c.shape.rows(), f.hidden_size}, 1);
    context = random({c.shape.context_rows(), f.context_size}, 1);
    dy = random({c.shape.rows(), f.hidden_size}, 1);
    y = Tensor({c.shape.rows(), f.hidden_size});
    dx = Tensor({c.shape.rows(), f.hidden_size});
    dcontext = Tensor({c.shape.context_rows(), f.context_size});
    d.q = zero({queries, f.hidden_size});
    d.k = zero({keys, f.context_size});
    d.v = zero({keys, f.context_size});
    d.o = zero({f.hidden_size, queries});
    d.q_bias = zero({queries});
    d.k_bias = zero({keys});
    d.v_bias = zero({keys});
    d.o_bias = zero({f.hidden_size});
    return MultiHeadAttention<Exec, T>(c.config, c.shape, weights(), *ledger);
  }
};

}  // namespace kformer::Testing
