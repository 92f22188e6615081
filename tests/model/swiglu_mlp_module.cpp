// SPDX-License-Identifier: MIT
#include "kformer/model/swiglu_mlp.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"
#include "support/interruption.hpp"

namespace kformer::Testing {
namespace {

/// A module, its weights and what goes in and out; gate and up are the halves of one array.
template <class T>
struct Module {
  using C = compute_t<T>;
  std::int64_t rows, hidden, inner;
  std::mt19937 generator{20261122};
  TestTensor<Exec, T> gate_up, down, x, y, dy, dx;
  TestTensor<Exec, C> d_gate_up, d_down;
  std::shared_ptr<Ledger> ledger = Ledger::create();
  SwigluMlp<Exec, T> module;

  Module(std::int64_t r, std::int64_t h, std::int64_t i, LayerMode mode = LayerMode::training)
      : rows(r), hidden(h), inner(i), module(make(mode)) {}

  template <class V>
  static auto half(const V& view, int which) {
    const std::size_t n = view.extent(0) / 2, first = static_cast<std::size_t>(which) * n;
    return Kokkos::subview(view, std::pair(first, first + n), Kokkos::ALL);
  }
  void forward() {
    module.forward(Exec(), x.template view<2>(), y.template view<2>());
    Exec().fence("kformer::Testing::module");
  }
  void backward() {
    const auto d = d_gate_up.template view<2>();
    module.backward(Exec(), x.template view<2>(), dy.template view<2>(), dx.template view<2>(),
                    {.gate = half(d, 0), .up = half(d, 1), .down = d_down.template view<2>()});
    Exec().fence("kformer::Testing::module");
  }

 private:
  SwigluMlp<Exec, T> make(LayerMode mode) {
    const auto random = [&](std::int64_t r, std::int64_t c, double scale) {
      return TestTensor<Exec, T>({r, c}).random(generator, scale);
    };
    gate_up = random(2 * inner, hidden, 1 / std::sqrt(static_cast<double>(hidden)));
    down = random(hidden, inner, 1 / std::sqrt(static_cast<double>(inner)));
    x = random(rows, hidden, 1);
    dy = random(rows, hidden, 1);
    y = TestTensor<Exec, T>({rows, hidden});
    dx = TestTensor<Exec, T>({rows, hidden});
    d_gate_up = TestTensor<Exec, C>({2 * inner, hidden}).fill([](std::size_t) { return C(0); });
    d_down = TestTensor<Exec, C>({hidden, inner}).fill([](std::size_t) { return C(0); });
    const auto w = gate_up.template view<2>();
    return SwigluMlp<Exec, T>({.hidden_size = hidden, .intermediate_size = inner, .mode = mode}, rows,
                              {.gate = half(w, 0), .up = half(w, 1), .down = down.template view<2>()}, *ledger);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(swiglu_mlp_module)

BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  for (const auto& [rows, hidden, inner] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{7, 13, 19}, {1, 8, 5}, {33, 4, 24}}) {
    Module<double> m(rows, hidden, inner);
    m.forward();
    m.backward();
    m.backward();  // gradients of the weights accumulate, dx is overwritten
    const std::vector<double> dy = m.dy.read<double>().values();
    const auto loss = [&] {
      m.forward();
      return dot(m.y.read<double>().values(), dy);
    };
    const auto twice = [&] { return 2 * loss(); };
    check_gradient_of("x", m.x, m.dx, m.generator, loss);
    check_gradient_of("gate_up", m.gate_up, m.d_gate_up, m.generator, twice);
    check_gradient_of("down", m.down, m.d_down, m.generator, twice);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_fused_block, T, Scalars) {
  Module<T> m(9, 24, 31), inference(9, 24, 31, LayerMode::inference);
  m.forward();
  inference.forward();
  BOOST_TEST((m.y.bits() == inference.y.bits()));
  const TestTensor<Exec, T> gate_up({9, 62}), product({9, 31}), y({9, 24});
  linear_swiglu_forward(Exec(), m.x.template view<2>(), m.gate_up.template view<2>(),
                        gate_up.template view<2>(), product.template view<2>());
  linear_forward(Exec(), product.template view<2>(), m.down.template view<2>(), y.template view<2>());
  Exec().fence("kformer::Testing::module");
  const auto one = m.y.template read<double>().values(), two = y.template read<double>().values();
  const double eps = sizeof(T) == 8           ? 0x1p-52
                     : sizeof(T) == 4         ? 0x1p-23
                     : std::is_same_v<T, f16> ? 0x1p-10
                                              : 0x1p-7;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    error += (one[i] - two[i]) * (one[i] - two[i]);
    size += two[i] * two[i];
  }
  BOOST_TEST(std::sqrt(error) <= 4 * eps * std::sqrt(size));
}

BOOST_AUTO_TEST_CASE(a_module_that_was_moved_from_is_refused) {
  Module<float> m(3, 8, 5);
  m.forward();
  const SwigluMlp<Exec, float> moved = moved_out_of(m.module);
  const std::string gone = ": the object was moved from and has no memory; use the one it was moved to";
  check_error<NotSupported>([&] { m.forward(); }, "kformer::SwigluMlp::forward" + gone);
  check_error<NotSupported>([&] { m.backward(); }, "kformer::SwigluMlp::backward" + gone);
}

BOOST_AUTO_TEST_CASE(errors) {
  Module<float> m(3, 8, 5), inference(3, 8, 5, LayerMode::inference);
  check_error<NotSupported>(
      [&] { m.backward(); },
      "kformer::SwigluMlp::backward: there was no forward; call forward(exec, x, y) first");
  inference.forward();
  check_error<NotSupported>(
      [&] { inference.backward(); },
      "kformer::SwigluMlp::backward: the module was made for inference and keeps nothing for "
      "backward; construct it with LayerMode::training");
  check_error<DimensionMismatch>([&] { m.module.forward(Exec(), m.down.view<2>(), m.y.view<2>()); },
                                 "kformer::SwigluMlp::forward: extents do not match: x[8,5]; expected x[3,8]");
  const auto ledger = Ledger::create();
  check_error<DimensionMismatch>([&] { SwigluMlp<Exec, float>({.hidden_size = 8}, 3, {}, *ledger); },
                                 "kformer::SwigluMlp: intermediate_size must be at least 1, got 0");
  check_error<DimensionMismatch>(
      [&] {
        const auto w = m.down.view<2>();
        SwigluMlp<Exec, float>({.hidden_size = 8, .intermediate_size = 5}, 3, {.gate = w, .up = w, .down = w},
                               *ledger);
      },
      "kformer::SwigluMlp: extents do not match: weights.gate[8,5]; expected weights.gate[5,8]");
}

BOOST_AUTO_TEST_CASE(outputs_that_share_memory_are_refused) {
  Module<float> m(3, 8, 5), inference(3, 8, 5, LayerMode::inference);
  const auto x = m.x.view<2>(), dy = m.dy.view<2>();
  check_error<DimensionMismatch>([&] { m.module.forward(Exec(), x, x); },
                                 "kformer::SwigluMlp::forward: y shares memory with x; pass a separate View: "
                                 "x[3,8] y[3,8]");
  m.forward();
  const auto d = m.d_gate_up.view<2>();
  const SwigluMlp<Exec, float>::Gradients gradients{
      .gate = m.half(d, 0), .up = m.half(d, 1), .down = m.d_down.view<2>()};
  const auto shares = [&](const auto& out, const auto& to, const std::string& sentence) {
    check_error<DimensionMismatch>([&] { m.module.backward(Exec(), x, dy, out, to); },
                                   "kformer::SwigluMlp::backward: " + sentence);
  };
  shares(x, gradients, "dx shares memory with x; pass a separate View: dx[3,8] x[3,8]");
  shares(dy, gradients, "dx shares memory with dy; pass a separate View: dx[3,8] dy[3,8]");
  auto over = gradients;
  over.down = m.down.view<2>();
  shares(m.dx.view<2>(), over,
         "gradients.down shares memory with weights.down; pass a separate View: gradients.down[8,5] "
         "weights.down[8,5]");
  over = gradients;
  over.up = over.gate;
  shares(m.dx.view<2>(), over,
         "gradients.gate shares memory with gradients.up; pass a separate View: gradients.gate[5,8] "
         "gradients.up[5,8]");
  inference.forward();
  inference.module.forward(Exec(), inference.x.view<2>(), inference.x.view<2>());
  Exec().fence("kformer::Testing::module");
  BOOST_TEST((inference.x.bits() == inference.y.bits()));
}

// A gradient that was accumulated cannot be taken back.
BOOST_AUTO_TEST_CASE(nothing_is_accumulated_before_everything_is_checked) {
  Module<float> m(3, 8, 5);
  m.forward();
  const auto before = m.d_down.bits();
  const auto x = m.x.view<2>(), dy = m.dy.view<2>(), dx = m.dx.view<2>(), d = m.d_gate_up.view<2>();
  const auto gate = m.half(d, 0);
  const auto down = m.d_down.view<2>();
  const auto refused = [&](auto call, const std::string& sentence) {
    check_error<DimensionMismatch>(call, "kformer::SwigluMlp::" + sentence);
    Exec().fence("kformer::Testing::module");
    BOOST_TEST((m.d_down.bits() == before), sentence);
  };
  refused([&] { m.module.backward(Exec(), x, dy, dx, {.gate = gate, .up = down, .down = down}); },
          "backward: extents do not match: gradients.up[8,5]; expected gradients.up[5,8]");
  refused([&] { m.module.backward(Exec(), x, dy, d, {.gate = gate, .up = gate, .down = down}); },
          "backward: extents do not match: dx[10,8]; expected dx[3,8]");
  refused([&] { m.module.backward(Exec(), x, d, dx, {.gate = gate, .up = gate, .down = down}); },
          "backward: extents do not match: dy[10,8]; expected dy[3,8]");
  refused([&] { m.module.forward(Exec(), x, d); }, "forward: extents do not match: y[10,8]; expected y[3,8]");
  const std::string lacks = " has no memory (null pointer, or a ledger that only counts); allocate it: ";
  const auto nowhere = [](const auto& view) { return std::decay_t<decltype(view)>(nullptr, view.layout()); };
  const auto up = m.half(d, 1);
  refused([&] { m.module.forward(Exec(), x, nowhere(dx)); }, "forward: y" + lacks + "y[3,8]");
  refused([&] { m.module.backward(Exec(), nowhere(x), dy, dx, {.gate = gate, .up = up, .down = down}); },
          "backward: x" + lacks + "x[3,8]");
  refused([&] { m.module.backward(Exec(), x, dy, nowhere(dx), {.gate = gate, .up = up, .down = down}); },
          "backward: dx" + lacks + "dx[3,8]");
  refused([&] { m.module.backward(Exec(), x, dy, dx, {.gate = nowhere(gate), .up = up, .down = down}); },
          "backward: gradients.gate" + lacks + "gradients.gate[5,8]");
  m.backward();  // still after the first forward
  BOOST_TEST((m.d_down.bits() != before));
}

BOOST_AUTO_TEST_CASE(there_is_no_backward_after_a_forward_that_failed) {
  Module<float> m(3, 8, 5);
  m.forward();
  {
    const Interruption interruption("swiglu_forward", 1);
    BOOST_CHECK_THROW(m.forward(), Interrupted);
  }
  check_error<NotSupported>(
      [&] { m.backward(); },
      "kformer::SwigluMlp::backward: there was no forward; call forward(exec, x, y) first");
  m.forward();
  m.backward();
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
