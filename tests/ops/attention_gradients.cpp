// SPDX-License-Identifier: MIT
// Gradients of flash attention, through the public functions, against finite differences.
#include "ops/attention_cases.hpp"
#include "support/gradient_check.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_gradients)

using Case = AttentionCase;
using Tensors = AttentionTensors<double>;

void forward(const Tensors& t) {
  attention_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                    t.c.options, extras_of(t));
  Exec().fence("kformer::Testing::attention");
}

void backward(const Tensors& t) {
  const auto gradients = extra_gradients_of(t);
  const auto bytes =
      attention_backward_workspace_bytes(Exec(), t.c.shape(DType::f64), t.c.options, extras_of(t), gradients);
  const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", bytes);
  attention_backward(Exec(), backward_operands(t), t.c.options, extras_of(t), gradients, workspace);
  Exec().fence("kformer::Testing::attention");
}

// Moves every operand that has a gradient along a random direction.
void check(const Case& c) {
  Tensors t(c);
  const Tensors along(c, Rows::strided, 7);
  const auto loss = [&](double h) {
    Tensors moved(c);
    const auto move = [h](TestTensor<Exec, double>& x, const TestTensor<Exec, double>& direction) {
      if (!x.ref().present()) return;
      const auto from = x.read<double>(), by = direction.read<double>();
      x.fill([&](std::size_t i) {
        return std::isfinite(from.values()[i]) && std::isfinite(by.values()[i])
                   ? from.values()[i] + h * by.values()[i]
                   : from.values()[i];
      });
    };
    move(moved.q, along.q);
    move(moved.k, along.k);
    move(moved.v, along.v);
    if (c.bias_has_gradient) move(moved.bias, along.bias);
    move(moved.sinks, along.sinks);
    forward(moved);
    const auto out = moved.out.read<double>(), weights = t.dout.read<double>();
    double sum = 0;
    for (std::size_t i = 0; i < out.values().size(); ++i) sum += out.values()[i] * weights.values()[i];
    return sum;
  };
  forward(t);
  const auto sinks_before = t.dsinks.read<double>();
  backward(t);
  double analytic = 0;
  const auto add = [&](const TestTensor<Exec, double>& gradient, const TestTensor<Exec, double>& direction) {
    if (!gradient.ref().present()) return;
    const auto g = gradient.read<double>(), d = direction.read<double>();
    for (std::size_t i = 0; i < g.values().size(); ++i)
      if (std::isfinite(d.values()[i])) analytic += g.values()[i] * d.values()[i];
  };
  add(t.dq, along.q);
  add(t.dk, along.k);
  add(t.dv, along.v);
  add(t.dbias, along.bias);
  if (c.has_sinks) {
    add(t.dsinks, along.sinks);
    const auto d = along.sinks.read<double>();
    for (std::size_t h = 0; h < d.values().size(); ++h) analytic -= sinks_before.values()[h] * d.values()[h];
  }
  check_gradient("attention", loss, analytic);
}

BOOST_AUTO_TEST_CASE(options_match_finite_differences) {
  check({2, 9, 13, 4, 2, 5, 3});
  check(Case{1, 70, 75, 2, 1, 8, 8}.causal().window(40));
  check(Case{1, 9, 13, 4, 2, 5, 3}.softcap(0.7));
}

BOOST_AUTO_TEST_CASE(extras_match_finite_differences) {
  const Case c{2, 9, 13, 4, 2, 5, 3};
  for (const Bias kind : {Bias::full, Bias::queries_and_keys, Bias::keys_per_batch}) check(c.bias(kind));
  check(c.causal().constant_bias(Bias::full));
  check(c.causal().alibi());
  check(c.sinks());
  check(c.blocks(4, 3));
  check(Case{1, 0, 0, 4, 2, 5, 3}.packed({3, 0, 7, 2}, {5, 4, 6, 0}).causal());
}

BOOST_AUTO_TEST_CASE(combinations_match_finite_differences) {
  check(Case{2, 20, 70, 4, 1, 5, 3}.causal().window(15).softcap(0.7).alibi().sinks().bias(Bias::full));
  check(Case{1, 20, 70, 4, 1, 8, 8}.softcap(2).alibi().sinks().bias(Bias::keys_per_batch).blocks(8, 16));
  check(Case{1, 0, 0, 4, 1, 5, 3}.packed({9, 70, 1}, {13, 75, 2}).causal().softcap(0.7).alibi().sinks());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
