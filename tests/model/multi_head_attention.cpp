// SPDX-License-Identifier: MIT
#include "kformer/model/multi_head_attention.hpp"

#include <limits>

#include "kformer/ops/attention.hpp"
#include "kformer/ops/attention_functors.hpp"
#include "kformer/ops/linear.hpp"
#include "model/multi_head_attention_case.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(multi_head_attention)

BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  for (const MultiHeadAttentionCase& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      Module<double> m(c);
      m.forward();
      m.backward();
      const std::vector<double> dy = m.dy.read<double>().values();
      const auto loss = [&] {
        m.forward();
        return dot(m.y.read<double>().values(), dy);
      };
      const auto check = [&](const char* name, TestTensor<Exec, double>& input,
                             const TestTensor<Exec, double>& gradient) {
        check_gradient_of(name, input, gradient, m.generator, loss);
      };
      check("x", m.x, m.dx);
      if (c.cross) check("context", m.context, m.dcontext);
      for_each_matrix(check, m.w, m.d);
      if (!c.bias) continue;
      check("q_bias", m.w.q_bias, m.d.q_bias);
      check("v_bias", m.w.v_bias, m.d.v_bias);
      check("o_bias", m.w.o_bias, m.d.o_bias);
      // A bias that all keys have changes no weight of softmax.
      const auto dk_bias = m.d.k_bias.read<double>();
      for (const double d : dk_bias.values()) BOOST_TEST(std::abs(d) <= 1e-13);
    }
}

// The bits of the same blocks, called one after the other.
BOOST_AUTO_TEST_CASE_TEMPLATE(forward_is_made_of_public_blocks, T, Scalars) {
  for (const MultiHeadAttentionCase& c : cases()) {
    if (c.config.rope) continue;
    Module<T> m(c);
    m.forward();
    const auto& f = m.c.config;
    const std::int64_t context_len = c.shape.context_rows() / c.shape.batch;
    using Flat = Kokkos::View<T**, Kokkos::LayoutRight, typename Exec::memory_space,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    const auto heads = [&](std::int64_t length, std::int64_t count) {
      return TestTensor<Exec, T>({c.shape.batch, length, count, f.head_dim}, Rows::packed);
    };
    const auto flat = [&](const TestTensor<Exec, T>& t) {
      const auto view = t.template view<4>();
      return Flat(view.data(), view.extent(0) * view.extent(1), view.extent(2) * view.extent(3));
    };
    const auto project = [&](const TestTensor<Exec, T>& in, const TestTensor<Exec, T>& weight,
                             const TestTensor<Exec, T>& bias, const auto& out) {
      if (c.bias)
        linear_bias_forward(Exec(), in.template view<2>(), weight.template view<2>(), bias.template view<1>(),
                            out);
      else
        linear_forward(Exec(), in.template view<2>(), weight.template view<2>(), out);
    };
    const auto q = heads(c.shape.seq_len, f.num_attention_heads),
               out = heads(c.shape.seq_len, f.num_attention_heads),
               k = heads(context_len, f.num_key_value_heads), v = heads(context_len, f.num_key_value_heads);
    const TestTensor<Exec, compute_t<T>> lse({c.shape.batch, f.num_attention_heads, c.shape.seq_len},
                                             Rows::packed);
    const TestTensor<Exec, T> y({c.shape.rows(), f.hidden_size});
    const TestTensor<Exec, T>& context = c.cross ? m.context : m.x;
    const AttentionShape shape{dtype_of<T>,           c.shape.batch,         c.shape.seq_len, context_len,
                               f.num_attention_heads, f.num_key_value_heads, f.head_dim,      f.head_dim};
    const Kokkos::View<std::byte*, Exec::memory_space> workspace(
        "kformer::Testing::workspace", attention_forward_workspace_bytes(Exec(), shape, f.attention));
    project(m.x, m.w.q, m.w.q_bias, flat(q));
    project(context, m.w.k, m.w.k_bias, flat(k));
    project(context, m.w.v, m.w.v_bias, flat(v));
    attention_forward(Exec(), q.template view<4>(), k.template view<4>(), v.template view<4>(),
                      out.template view<4>(), lse.template view<3>(), f.attention, {}, workspace);
    if (c.bias)
      linear_bias_forward(Exec(), flat(out), m.w.o.template view<2>(), m.w.o_bias.template view<1>(),
                          y.template view<2>());
    else
      linear_forward(Exec(), flat(out), m.w.o.template view<2>(), y.template view<2>());
    Exec().fence("kformer::Testing::module");
    BOOST_TEST((y.bits() == m.y.bits()), c.name);
  }
}

// The gradients in T against those in double, of the same rounded operands.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_are_those_in_double_but_for_rounding, T, UpToFloat) {
  for (const MultiHeadAttentionCase& c : cases()) BOOST_TEST_CONTEXT(c.name) {
      Module<T> m(c);
      Module<double> exact(c);
      const auto copy = [](const TestTensor<Exec, T>& from, TestTensor<Exec, double>& to) {
        const auto values = from.template read<double>().values();
        to.fill([&](std::size_t i) { return values[i]; });
      };
      copy(m.w.q, exact.w.q), copy(m.w.k, exact.w.k), copy(m.w.v, exact.w.v), copy(m.w.o, exact.w.o),
          copy(m.x, exact.x);
      copy(m.w.q_bias, exact.w.q_bias), copy(m.w.k_bias, exact.w.k_bias), copy(m.w.v_bias, exact.w.v_bias);
      copy(m.w.o_bias, exact.w.o_bias), copy(m.context, exact.context), copy(m.dy, exact.dy);
      m.forward(), m.backward(), exact.forward(), exact.backward();
      const auto check = [&](const char* name, const auto& t, const TestTensor<Exec, double>& expected) {
        const auto got = t.template read<double>().values(), wanted = expected.template read<double>().values();
        double error = 0, size = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
          size += wanted[i] * wanted[i];
        }
        const double eps = sizeof(T) == 4 ? 0x1p-23 : std::is_same_v<T, f16> ? 0x1p-10 : 0x1p-7;
        BOOST_TEST(std::sqrt(error) <= 4 * eps * std::sqrt(size),
                   name << ": " << std::sqrt(error / size) / eps);
      };
      check("y", m.y, exact.y);
      check("dx", m.dx, exact.dx);
      if (c.cross) check("dcontext", m.dcontext, exact.dcontext);
      for_each_matrix(check, m.d, exact.d);
      for (const auto* t : {&m.x, &m.y, &m.dx, &m.dcontext}) BOOST_TEST(t->guards_intact());
    }
}

struct Near {
  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const {
    const auto distance = at.query - at.key;
    return distance > -3 && distance < 3;
  }
};

BOOST_AUTO_TEST_CASE(a_functor_hides_the_keys_that_the_option_hides) {
  MultiHeadAttentionCase windowed{
      "window", {.hidden_size = 24, .num_attention_heads = 3, .attention = {.window = 3}}, {2, 17}};
  MultiHeadAttentionCase free = windowed;
  free.config.attention.window = 0;
  Module<double> by_option(windowed), by_functor(free);
  by_option.forward();
  by_option.backward();
  const auto x = by_functor.x.view<2>();
  by_functor.module.forward(Exec(), x, by_functor.y.view<2>(), Near{});
  by_functor.module.backward(Exec(), x, by_functor.dy.view<2>(), by_functor.dx.view<2>(),
                             by_functor.gradients(), Near{});
  Exec().fence("kformer::Testing::module");
  const auto agree = [](const TestTensor<Exec, double>& a, const TestTensor<Exec, double>& b) {
    const auto one = a.read<double>().values(), two = b.read<double>().values();
    for (std::size_t i = 0; i < one.size(); ++i) BOOST_TEST(std::abs(one[i] - two[i]) <= 1e-13);
  };
  agree(by_option.y, by_functor.y);
  agree(by_option.d.q, by_functor.d.q);
  agree(by_option.d.v, by_functor.d.v);
  agree(by_option.dx, by_functor.dx);
}

// What a user writes on Views of his own.
BOOST_AUTO_TEST_CASE(a_module_on_plain_views) {
  const Exec exec;
  using View = Kokkos::View<float**, Kokkos::LayoutRight, Exec::memory_space>;
  const View x("x", 6, 8), y("y", 6, 8), dy("dy", 6, 8), dx("dx", 6, 8);
  const View w_q("w_q", 8, 8), w_k("w_k", 8, 8), w_v("w_v", 8, 8), w_o("w_o", 8, 8);
  const View d_q("d_q", 8, 8), d_k("d_k", 8, 8), d_v("d_v", 8, 8), d_o("d_o", 8, 8);
  for (const View& view : {x, dy, w_v, w_o}) Kokkos::deep_copy(exec, view, 0.5f);
  const auto ledger = Ledger::create();
  MultiHeadAttention<Exec, float> attention({.hidden_size = 8, .num_attention_heads = 2},
                                            {.batch = 2, .seq_len = 3},
                                            {.q = w_q, .k = w_k, .v = w_v, .o = w_o}, *ledger);
  attention.forward(exec, x, y);
  attention.backward(exec, x, dy, dx, {.q = d_q, .k = d_k, .v = d_v, .o = d_o});
  const auto host_y = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y);
  const auto host_dx = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), dx);
  // The probabilities are exp(-log 3), of which a kernel rounds the logarithm and the exponential.
  const auto rounded = boost::test_tools::tolerance(4 * std::numeric_limits<float>::epsilon());
  BOOST_TEST(host_y(5, 7) == 8.f, rounded);   // v = 8/4, y = 8 · v/2
  BOOST_TEST(host_dx(5, 7) == 8.f, rounded);  // the values' way alone
}

BOOST_AUTO_TEST_CASE(memory_is_booked_when_the_module_is_made) {
  for (const MultiHeadAttentionCase& c : cases()) {
    Module<float> m(c);
    m.forward();
    m.backward();
    const auto ledger = Ledger::create(), forecast = Ledger::create(Ledger::Mode::count);
    const ToolsRecorder witness;
    {
      MultiHeadAttention<Exec, float> counted(m.c.config, c.shape, m.weights(), *forecast);
      BOOST_TEST(witness.allocations().empty());
      m.module = MultiHeadAttention<Exec, float>(m.c.config, c.shape, m.weights(), *ledger);
      m.module.prepare(Exec());
      const std::size_t made = ledger->current_total();
      m.forward();
      m.backward();
      BOOST_TEST(witness.peak_bytes() == made);
      BOOST_TEST(ledger->peak_total() == made);
      BOOST_TEST(forecast->peak_total() == made);
    }
  }
}

BOOST_AUTO_TEST_CASE(errors) {
  const auto refused = [](auto call, const std::string& sentence) {
    check_error<NotSupported>(call, "kformer::MultiHeadAttention::" + sentence);
  };
  Module<float> m(cases()[0]);
  refused([&] { m.backward(); }, "backward: there was no forward; call forward(exec, x, y) first");
  const auto x = m.x.view<2>(), y = m.y.view<2>();
  const auto ledger = Ledger::create();
  MultiHeadAttentionConfig config = m.c.config;
  config.mode = LayerMode::inference;
  MultiHeadAttention<Exec, float> inference(config, m.c.shape, m.weights(), *ledger);
  inference.forward(Exec(), x, y);
  refused([&] { inference.backward(Exec(), x, y, m.dx.view<2>(), m.gradients()); },
          "backward: the module was made for inference and has no workspace for backward; construct it with "
          "LayerMode::training");
  Module<float> turned(cases()[2]);
  MultiHeadAttention<Exec, float> fresh(turned.c.config, turned.c.shape, turned.weights(), *ledger);
  refused([&] { fresh.forward(Exec(), turned.x.view<2>(), turned.y.view<2>()); },
          "forward: the rotary tables are empty; call prepare(exec) once, before the first forward");
  MultiHeadAttention<Exec, float> other(turned.c.config, {2, 7, 3}, turned.weights(), *ledger);
  other.prepare(Exec());
  refused([&] { other.forward(Exec(), turned.x.view<2>(), turned.x.view<2>(), turned.y.view<2>()); },
          "forward: a rotary embedding needs a context as long as x, got 3 and 7 tokens; leave `rope` out for "
          "cross-attention");
  const auto wrong = [](auto call, const std::string& sentence) {
    check_error<DimensionMismatch>(call, "kformer::MultiHeadAttention" + sentence);
  };
  auto weights = m.weights();
  weights.k = m.x.view<2>();
  wrong([&] { MultiHeadAttention<Exec, float>(m.c.config, m.c.shape, weights, *ledger); },
        ": extents do not match: weights.k[10,21]; expected weights.k[21,21]");
  auto gradients = m.gradients();
  gradients.v = {};
  m.forward();
  wrong([&] { m.module.backward(Exec(), x, y, m.dx.view<2>(), gradients); },
        "::backward: extents do not match: gradients.v[0,0]; expected gradients.v[21,21]");
  const auto counting = Ledger::create(Ledger::Mode::count);
  MultiHeadAttention<Exec, float> planned(m.c.config, m.c.shape, m.weights(), *counting);
  const std::string lacks = " has no memory (null pointer, or a ledger that only counts); allocate it";
  wrong([&] { planned.forward(Exec(), x, y); }, "::forward: the module" + lacks);
  Module<float> biased(cases()[1]);
  auto nowhere = biased.weights();
  nowhere.k_bias = decltype(nowhere.k_bias)(nullptr, Kokkos::LayoutStride(10, 1));
  MultiHeadAttention<Exec, float> unaddressed(biased.c.config, biased.c.shape, nowhere, *ledger);
  wrong([&] { unaddressed.forward(Exec(), biased.x.view<2>(), biased.y.view<2>()); },
        "::forward: weights.k_bias" + lacks + ": weights.k_bias[10]");
  wrong([&] { m.module.forward(Exec(), m.w.q.view<2>(), y); },
        "::forward: extents do not match: x[21,21]; expected x[10,21]");
  const auto make = [&](MultiHeadAttentionConfig c) {
    return [&, c] { MultiHeadAttention<Exec, float>(c, {1, 1}, {}, *ledger); };
  };
  wrong(make({}), ": hidden_size must be positive, got 0");
  wrong(make({.hidden_size = 5, .num_attention_heads = 2}),
        ": hidden_size 5 is not a multiple of num_attention_heads 2; give head_dim");
  wrong(make({.hidden_size = 6, .num_attention_heads = 3, .num_key_value_heads = 2}),
        ": num_key_value_heads 2 does not divide num_attention_heads 3");
  wrong(make({.hidden_size = 6, .num_attention_heads = 2, .rope = RopeOptions{}}),
        ": a rotary embedding needs an even head_dim, got 3");
}

BOOST_AUTO_TEST_CASE(options_are_refused_by_the_constructor) {
  const Module<float> m(cases()[0]);
  const auto ledger = Ledger::create();
  const auto refused = [&](auto change, const std::string& sentence) {
    MultiHeadAttentionConfig config = m.c.config;
    change(config);
    check_error<NotSupported>([&] { MultiHeadAttention<Exec, float>(config, m.c.shape, m.weights(), *ledger); },
                              "kformer::MultiHeadAttention: " + sentence);
  };
  refused([](auto& c) { c.attention.window = -1; }, "window must not be negative, got -1");
  refused([](auto& c) { c.attention.compute = static_cast<Precision>(7); },
          "compute has the value 7, which its type does not name; choose one of: storage, full");
  refused([](auto& c) { c.mode = static_cast<LayerMode>(-1); },
          "mode has the value -1, which its type does not name; choose one of: inference, training");
  refused(
      [](auto& c) {
        c.head_dim = 8;
        c.rope = RopeOptions{.theta = 0};
      },
      "theta must be positive, got 0.000000");
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_CASE(gradients_of_biases_that_do_not_exist_are_refused) {
  Module<float> m(cases()[0]);
  m.forward();
  const TestTensor<Exec, float> d_bias({21});
  const auto check = [&](auto member, const std::string& name) {
    auto gradients = m.gradients();
    gradients.*member = d_bias.view<1>();
    check_error<DimensionMismatch>(
        [&] { m.module.backward(Exec(), m.x.view<2>(), m.dy.view<2>(), m.dx.view<2>(), gradients); },
        "kformer::MultiHeadAttention::backward: gradients." + name +
            " was given, but the module was made without weights." + name + "; leave it out");
  };
  using Gradients = MultiHeadAttention<Exec, float>::Gradients;
  check(&Gradients::q_bias, "q_bias");
  check(&Gradients::k_bias, "k_bias");
  check(&Gradients::v_bias, "v_bias");
  check(&Gradients::o_bias, "o_bias");
}

BOOST_AUTO_TEST_CASE(outputs_that_share_memory_are_refused) {
  const auto shares = [](auto call, const std::string& sentence) {
    check_error<DimensionMismatch>(call, "kformer::MultiHeadAttention::" + sentence);
  };
  const std::string separate = "; pass a separate View: ";
  Module<float> self(cases()[0]);
  self.forward();
  const auto x = self.x.view<2>(), dy = self.dy.view<2>();
  shares([&] { self.module.forward(Exec(), x, x); },
         "forward: y shares memory with x" + separate + "x[10,21] y[10,21]");
  const auto ten = Kokkos::subview(self.w.q.view<2>(), std::pair(0, 10), Kokkos::ALL);
  shares([&] { self.module.forward(Exec(), x, ten); },
         "forward: y shares memory with weights.q" + separate + "y[10,21] weights.q[21,21]");
  Module<float> biased(cases()[1]);
  auto over_y = biased.weights();
  const auto by = biased.y.view<2>();
  for (auto* bias : {&over_y.q_bias, &over_y.k_bias, &over_y.v_bias, &over_y.o_bias})
    *bias = std::remove_pointer_t<decltype(bias)>(by.data(), Kokkos::LayoutStride(bias->extent(0), 1));
  const auto of_biases = Ledger::create();
  MultiHeadAttention<Exec, float> on_y(biased.c.config, biased.c.shape, over_y, *of_biases);
  shares([&] { on_y.forward(Exec(), biased.x.view<2>(), by); },
         "forward: y shares memory with weights.q_bias" + separate + "y[9,19] weights.q_bias[20]");
  shares([&] { self.module.backward(Exec(), x, dy, x, self.gradients()); },
         "backward: dx shares memory with x" + separate + "dx[10,21] x[10,21]");
  shares([&] { self.module.backward(Exec(), x, dy, dy, self.gradients()); },
         "backward: dx shares memory with dy" + separate + "dx[10,21] dy[10,21]");
  auto twice = self.gradients();
  twice.k = twice.q;
  shares([&] { self.module.backward(Exec(), x, dy, self.dx.view<2>(), twice); },
         "backward: gradients.q shares memory with gradients.k" + separate +
             "gradients.q[21,21] gradients.k[21,21]");
  auto over = self.gradients();
  over.o = self.w.o.view<2>();
  shares(
      [&] { self.module.backward(Exec(), x, dy, self.dx.view<2>(), over); },
      "backward: gradients.o shares memory with weights.o" + separate + "gradients.o[21,21] weights.o[21,21]");
  // A context of as many tokens and features as x.
  Module<float> cross({"cross", {.hidden_size = 12, .num_attention_heads = 4}, {3, 7, 7}, false, true});
  cross.forward();
  const auto qx = cross.x.view<2>(), context = cross.context.view<2>(), dout = cross.dy.view<2>(),
             dx = cross.dx.view<2>();
  shares([&] { cross.module.forward(Exec(), qx, context, context); },
         "forward: y shares memory with context" + separate + "x[21,12] context[21,12] y[21,12]");
  const std::string dx_dcontext = separate + "dx[21,12] dcontext[21,12]";
  shares([&] { cross.module.backward(Exec(), {qx, context, dout, dx, dx, cross.gradients()}); },
         "backward: dx shares memory with dcontext" + dx_dcontext);
  shares([&] { cross.module.backward(Exec(), {qx, context, dout, dx, context, cross.gradients()}); },
         "backward: dcontext shares memory with context" + separate + "dcontext[21,12] context[21,12]");
  shares([&] { cross.module.backward(Exec(), {qx, context, dout, dx, dx, cross.gradients()}, Near{}); },
         "backward: dx shares memory with dcontext" + dx_dcontext);
  const auto ledger = Ledger::create();
  MultiHeadAttentionConfig config = self.c.config;
  config.mode = LayerMode::inference;
  MultiHeadAttention<Exec, float> inference(config, self.c.shape, self.weights(), *ledger);
  inference.forward(Exec(), x, x);
  Exec().fence("kformer::Testing::module");
  BOOST_TEST((self.x.bits() == self.y.bits()));
}

// What forward saved is of no use to another backward.
BOOST_AUTO_TEST_CASE(backward_must_be_of_the_kind_of_forward) {
  const auto refused = [](auto call, const std::string& sentence) {
    check_error<NotSupported>(call, "kformer::MultiHeadAttention::backward: " + sentence);
  };
  Module<float> m({"as long as x", {.hidden_size = 12, .num_attention_heads = 4}, {3, 7, 7}, false, true});
  const auto x = m.x.view<2>(), y = m.y.view<2>(), dy = m.dy.view<2>(), dx = m.dx.view<2>();
  const auto of_x = [&](auto... functor) { m.module.backward(Exec(), x, dy, dx, m.gradients(), functor...); };
  m.forward();
  refused([&] { of_x(); }, "forward had a context; pass the operands with context and dcontext");
  refused([&] { m.module.backward(Exec(), m.operands(), Near{}); },
          "forward had no functor; leave it out of backward too");
  m.backward();
  m.module.forward(Exec(), x, y);
  refused([&] { m.backward(); }, "forward had no context; pass backward(exec, x, dy, dx, gradients)");
  of_x();
  m.module.forward(Exec(), x, y, Near{});
  refused([&] { of_x(); }, "forward had a functor; pass it to backward too");
  of_x(Near{});
}

BOOST_AUTO_TEST_CASE(a_module_that_was_moved_from_is_refused) {
  Module<float> m(cases()[0]);
  m.forward();
  MultiHeadAttention<Exec, float> moved = moved_out_of(m.module);
  const std::string gone = ": the object was moved from and has no memory; use the one it was moved to";
  check_error<NotSupported>([&] { m.forward(); }, "kformer::MultiHeadAttention::forward" + gone);
  check_error<NotSupported>([&] { m.backward(); }, "kformer::MultiHeadAttention::backward" + gone);
  check_error<NotSupported>([&] { m.module.prepare(Exec()); }, "kformer::MultiHeadAttention::prepare" + gone);
  moved.backward(Exec(), m.x.view<2>(), m.dy.view<2>(), m.dx.view<2>(), m.gradients());
  m.module = std::move(moved);
  m.backward();
}

BOOST_AUTO_TEST_CASE(negative_extents_are_refused) {
  Module<float> m(cases()[0]);
  const auto ledger = Ledger::create();
  check_error<DimensionMismatch>(
      [&] { MultiHeadAttention<Exec, float>(m.c.config, {-2, 10}, m.weights(), *ledger); },
      "kformer::MultiHeadAttention: batch is -2; it must not be negative");
}

// A gradient that was accumulated cannot be taken back.
BOOST_AUTO_TEST_CASE(nothing_is_accumulated_before_everything_is_checked) {
  Module<float> m(cases()[3]);
  m.forward();
  const auto before = m.d.o.bits();
  const auto x = m.x.view<2>(), context = m.context.view<2>(), dy = m.dy.view<2>(), dx = m.dx.view<2>(),
             dcontext = m.dcontext.view<2>();
  const auto refused = [&](auto call, const std::string& sentence) {
    check_error<DimensionMismatch>(call, "kformer::MultiHeadAttention::" + sentence);
    Exec().fence("kformer::Testing::module");
    BOOST_TEST((m.d.o.bits() == before), sentence);
  };
  const auto gradients = m.gradients();
  refused([&] { m.module.backward(Exec(), {context, context, dy, dx, dcontext, gradients}); },
          "backward: extents do not match: x[22,13]; expected x[10,18]");
  refused([&] { m.module.backward(Exec(), {x, x, dy, dx, dcontext, gradients}); },
          "backward: the module was made for a context of 11 tokens with 13 features; pass the context");
  refused([&] { m.module.forward(Exec(), x, dy); },
          "forward: the module was made for a context of 11 tokens with 13 features; pass the context");
  refused([&] { m.module.backward(Exec(), {x, context, context, dx, dcontext, gradients}); },
          "backward: extents do not match: dy[22,13]; expected dy[10,18]");
  refused([&] { m.module.backward(Exec(), {x, context, dy, dcontext, dcontext, gradients}); },
          "backward: extents do not match: dx[22,13]; expected dx[10,18]");
  refused([&] { m.module.backward(Exec(), {x, context, dy, dx, dx, gradients}); },
          "backward: extents do not match: dcontext[10,18]; expected dcontext[22,13]");
  refused([&] { m.module.forward(Exec(), x, context, dcontext); },
          "forward: extents do not match: y[22,13]; expected y[10,18]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
