// SPDX-License-Identifier: MIT
// Models and modules whose calls are refused or fail: nothing is half done, and what comes next is refused, too.
#include "model/layer_run.hpp"
#include "model/model_cases.hpp"
#include "model/model_run.hpp"
#include "model/multi_head_attention_case.hpp"
#include "model/small_layer.hpp"
#include "support/errors.hpp"
#include "support/interruption.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

/// The View without its address.
template <class V>
V nowhere(const V& view) {
  return V(nullptr, view.layout());
}

const std::string lacks = " has no memory (null pointer, or a ledger that only counts); allocate it: ";

TestTensor<Exec, std::int32_t> integers(const std::vector<std::int32_t>& values) {
  TestTensor<Exec, std::int32_t> t({std::ssize(values)});
  return t.fill([&](std::size_t i) { return values[i]; });
}

/// Two documents in 14 tokens.
struct Documents {
  TestTensor<Exec, std::int32_t> starts = integers({0, 5, 14}),
                                 positions = integers({0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8});

  PackedTokens<Exec::memory_space> packed() const { return {starts.view<1>(), positions.view<1>()}; }
  void end_at(std::int32_t end) {
    starts.fill([&](std::size_t i) { return i == 0 ? 0 : i == 1 ? 5 : end; });
  }
};

const std::string wrong_starts =
    "extents do not match: starts[3] positions[14]; expected starts to start at 0, never to decrease, and to "
    "end "
    "at 14";

}  // namespace

BOOST_AUTO_TEST_SUITE(model_misuse)

BOOST_AUTO_TEST_CASE(attention_accumulates_nothing_without_memory_for_all) {
  Module<float> m(cases()[3]);  // with a context and biases
  m.forward();
  const auto bits = [&] {
    std::vector<std::vector<unsigned char>> all;
    for (const auto* t : {&m.d.q, &m.d.k, &m.d.v, &m.d.o, &m.d.q_bias, &m.d.k_bias, &m.d.v_bias, &m.d.o_bias})
      all.push_back(t->bits());
    return all;
  };
  const auto before = bits();
  const auto refused = [&](auto change, const std::string& operand) {
    auto operands = m.operands();
    change(operands);
    check_error<DimensionMismatch>(
        [&] { m.module.backward(Exec(), operands); },
        "kformer::MultiHeadAttention::backward: " + operand.substr(0, operand.find('[')) + lacks + operand);
    Exec().fence("kformer::Testing::module");
    BOOST_TEST((bits() == before), operand);
  };
  refused([](auto& o) { o.x = nowhere(o.x); }, "x[10,18]");
  refused([](auto& o) { o.context = nowhere(o.context); }, "context[22,13]");
  refused([](auto& o) { o.dy = nowhere(o.dy); }, "dy[10,18]");
  refused([](auto& o) { o.dx = nowhere(o.dx); }, "dx[10,18]");
  refused([](auto& o) { o.dcontext = nowhere(o.dcontext); }, "dcontext[22,13]");
  refused([](auto& o) { o.gradients.q = nowhere(o.gradients.q); }, "gradients.q[18,18]");
  refused([](auto& o) { o.gradients.v = nowhere(o.gradients.v); }, "gradients.v[18,13]");
  refused([](auto& o) { o.gradients.k_bias = nowhere(o.gradients.k_bias); }, "gradients.k_bias[18]");
  check_error<DimensionMismatch>(
      [&] { m.module.forward(Exec(), m.x.view<2>(), m.context.view<2>(), nowhere(m.y.view<2>())); },
      "kformer::MultiHeadAttention::forward: y" + lacks + "y[10,18]");
  m.backward();  // still after the first forward
  BOOST_TEST((bits() != before));
}

BOOST_AUTO_TEST_CASE(attention_has_no_backward_after_a_forward_that_failed) {
  Module<float> m(cases()[0]);
  m.forward();
  {
    const Interruption interruption("attention_forward", 1);
    BOOST_CHECK_THROW(m.forward(), Interrupted);
  }
  check_error<NotSupported>(
      [&] { m.backward(); },
      "kformer::MultiHeadAttention::backward: there was no forward; call forward(exec, x, y) first");
  m.forward();
  m.backward();
}

BOOST_AUTO_TEST_CASE(a_layer_accumulates_nothing_without_memory_for_all) {
  LayerUnderTest<float> run(LayerInputs::random(small_config(), {2, 7}), AttentionAlgorithm::flash);
  run.forward();
  const auto before = run.bits();
  const TestTensor<Exec, float> x({14, 56}), dy({14, 56}), dx({14, 56});
  const auto refused = [&](const auto& call, const std::string& function, const std::string& role) {
    const ToolsRecorder recorder;
    check_error<DimensionMismatch>(
        call, "kformer::DecoderLayer::" + function + ": " + role + lacks + role + "[14,56]");
    BOOST_TEST(recorder.kernels().empty(), role);
    BOOST_TEST((run.bits() == before), role);
  };
  const auto backward = [&](const auto& a, const auto& b, const auto& c) {
    return [&run, a, b, c] { run.layer().backward(Exec(), a, b, c); };
  };
  const auto in = x.view<2>(), d_out = dy.view<2>(), d_in = dx.view<2>();
  refused(backward(nowhere(in), d_out, d_in), "backward", "x");
  refused(backward(in, nowhere(d_out), d_in), "backward", "dy");
  refused(backward(in, d_out, nowhere(d_in)), "backward", "dx");
  refused([&] { run.layer().forward(Exec(), in, nowhere(d_in)); }, "forward", "y");
  run.backward();
}

BOOST_AUTO_TEST_CASE(a_layer_has_no_backward_after_a_forward_that_failed) {
  const LayerInputs inputs = LayerInputs::random(small_config(), {2, 7});
  for (const Recompute policy : policies) {
    LayerUnderTest<double> run(inputs, AttentionAlgorithm::flash, LayerMode::training, Exec(),
                               Precision::storage, policy),
        expected(inputs, AttentionAlgorithm::flash, LayerMode::training, Exec(), Precision::storage, policy);
    run.forward();
    {
      const Interruption interruption("attention_forward", 1);
      BOOST_CHECK_THROW(run.forward(), Interrupted);
    }
    check_error<NotSupported>(
        [&] { run.backward(); },
        "kformer::DecoderLayer::backward: there was no forward; call forward(exec, x, y) first");
    for (auto* layer : {&run, &expected}) {
      layer->forward();
      layer->backward();
    }
    BOOST_TEST((run.bits() == expected.bits()), name_of(policy));
  }
}

// The arrays that layers share hold what the layer that failed left.
BOOST_AUTO_TEST_CASE(a_layer_does_not_take_what_a_failed_one_left_for_its_own) {
  const LayerInputs inputs = LayerInputs::random(small_config(), {2, 7});
  const auto ledger = Ledger::create();
  const LayerOptions options{.recompute = Recompute::layer};
  DecoderLayer<Exec, double> first(inputs.config, inputs.shape, options, *ledger);
  DecoderLayer<Exec, double> second(inputs.config, inputs.shape, options, *ledger, &first);
  for (auto* layer : {&first, &second}) {
    for (const Parameter& p : layer->parameters()) write_parameter<double>(p.weight, inputs.weights.at(p.name));
    layer->prepare(Exec());
  }
  TestTensor<Exec, double> x({14, 56}), other({14, 56}), y({14, 56}), dy({14, 56}), dx({14, 56});
  x.fill([&](std::size_t i) { return inputs.x.values()[i]; });
  other.fill([&](std::size_t i) { return 2 - inputs.x.values()[i]; });
  dy.fill([&](std::size_t i) { return inputs.dy.values()[i]; });
  const auto gradient = [&](bool interrupted) {
    first.forward(Exec(), x.view<2>(), y.view<2>());
    if (interrupted) {
      const Interruption interruption("linear_swiglu_forward", 1);
      BOOST_CHECK_THROW(second.forward(Exec(), other.view<2>(), y.view<2>()), Interrupted);
    }
    first.backward(Exec(), x.view<2>(), dy.view<2>(), dx.view<2>());
    Exec().fence("kformer::Testing::layer");
    return dx.bits();
  };
  const auto expected = gradient(false);
  BOOST_TEST((gradient(true) == expected));
}

BOOST_AUTO_TEST_CASE(every_slot_of_a_layer_has_its_own_order_of_calls) {
  const LayerInputs inputs = LayerInputs::random(small_config(), {2, 7});
  const auto ledger = Ledger::create();
  DecoderLayer<Exec, float> layer(inputs.config, inputs.shape, {.slots = 2, .split_backward = true}, *ledger),
      whole(inputs.config, inputs.shape, {}, *ledger);
  for (const Parameter& p : layer.parameters()) write_parameter<float>(p.weight, inputs.weights.at(p.name));
  layer.prepare(Exec());
  whole.prepare(Exec());
  TestTensor<Exec, float> x({14, 56}), y({14, 56}), dy({14, 56}), dx({14, 56});
  x.fill([&](std::size_t i) { return static_cast<float>(inputs.x.values()[i]); });
  dy.fill([&](std::size_t i) { return static_cast<float>(inputs.dy.values()[i]); });
  const auto forward = [&] { layer.forward(Exec(), x.view<2>(), y.view<2>()); };
  const auto backward = [&] { layer.backward(Exec(), x.view<2>(), dy.view<2>(), dx.view<2>()); };
  const auto weights = [&] { layer.backward_weights(Exec(), x.view<2>()); };
  const auto no_forward = [&] {
    check_error<NotSupported>(
        backward, "kformer::DecoderLayer::backward: there was no forward; call forward(exec, x, y) first");
  };
  const auto no_backward = [&] {
    check_error<NotSupported>(weights,
                              "kformer::DecoderLayer::backward_weights: each backward allows one "
                              "backward_weights; call forward and backward first");
  };
  forward();
  no_backward();
  layer.use_slot(1);
  no_forward();
  layer.use_slot(0);
  backward();
  layer.use_slot(1);
  no_backward();
  forward();
  layer.use_slot(0);
  weights();
  no_backward();
  backward();  // any number of times
  forward();
  no_backward();
  layer.use_slot(1);
  backward();
  weights();
  no_backward();
  whole.forward(Exec(), x.view<2>(), y.view<2>());
  whole.backward(Exec(), x.view<2>(), dy.view<2>(), dx.view<2>());
  check_error<NotSupported>([&] { whole.backward_weights(Exec(), x.view<2>()); },
                            "kformer::DecoderLayer::backward_weights: backward has made these gradients; set "
                            "LayerOptions::split_backward");
  Exec().fence("kformer::Testing::layer");
}

// On a device they cannot be read without a fence.
BOOST_AUTO_TEST_CASE(borders_of_documents_are_read_before_anything_runs) {
  if (!Impl::is_host_space<Exec>) return;
  const auto ledger = Ledger::create();
  Documents documents;
  const auto refused = [&](const auto& call, const std::string& function) {
    const ToolsRecorder recorder;
    check_error<DimensionMismatch>(call, "kformer::" + function + ": " + wrong_starts);
    BOOST_TEST(recorder.kernels().empty(), function);
  };
  DecoderLayer<Exec, float> layer(small_config(), {2, 7}, {.packed = true}, *ledger);
  layer.prepare(Exec());
  const TestTensor<Exec, float> x({14, 56}), y({14, 56}), dy({14, 56}), dx({14, 56});
  const auto forward = [&] { layer.forward(Exec(), x.view<2>(), y.view<2>(), documents.packed()); };
  const auto backward = [&] {
    layer.backward(Exec(), x.view<2>(), dy.view<2>(), dx.view<2>(), documents.packed());
  };
  documents.end_at(13);
  refused(forward, "DecoderLayer::forward");
  documents.end_at(14);
  forward();
  documents.end_at(4);
  refused(backward, "DecoderLayer::backward");

  const ModelInputs inputs = ModelInputs::random(small_model(), {2, 7});
  LlamaModel<Exec, float> model(inputs.config, inputs.shape, {.packed = true}, *ledger);
  for (const Parameter& p : model.parameters()) write_parameter<float>(p.weight, inputs.weights.at(p.name));
  model.prepare(Exec());
  const auto ids = integers(inputs.ids), targets = integers(inputs.targets);
  const TestTensor<Exec, float> loss({14}), dloss({14}), states({14, inputs.config.hidden_size});
  const auto run = [&] { model.forward(Exec(), ids.view<1>(), documents.packed()); };
  refused(run, "LlamaModel::forward");
  refused([&] { model.forward_embedded(Exec(), states.view<2>(), documents.packed()); },
          "LlamaModel::forward_embedded");
  documents.end_at(14);
  run();
  documents.end_at(15);
  refused([&] { model.backward(Exec(), ids.view<1>(), targets.view<1>(), dloss.view<1>(), loss.view<1>()); },
          "LlamaModel::backward");
}

BOOST_AUTO_TEST_CASE(a_model_launches_nothing_without_memory_for_all) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {2, 7});
  ModelUnderTest<float> run(inputs);
  const auto ids = integers(inputs.ids), targets = integers(inputs.targets);
  const TestTensor<Exec, float> loss({14}), dloss({14}), states({14, inputs.config.hidden_size});
  const auto in = ids.view<1>(), next = targets.view<1>();
  const auto out = loss.view<1>(), factors = dloss.view<1>();
  const auto refused = [&](const auto& call, const std::string& function, const std::string& operand) {
    const ToolsRecorder recorder;
    check_error<DimensionMismatch>(call, "kformer::LlamaModel::" + function + ": " +
                                             operand.substr(0, operand.find('[')) + lacks + operand);
    BOOST_TEST(recorder.kernels().empty(), operand);
  };
  auto& model = run.model();
  refused([&] { model.forward(Exec(), nowhere(in)); }, "forward", "ids[14]");
  run.forward();
  refused([&] { model.loss(Exec(), nowhere(next), out); }, "loss", "targets[14]");
  refused([&] { model.backward(Exec(), nowhere(in), next, factors, out); }, "backward", "ids[14]");
  refused([&] { model.backward(Exec(), in, nowhere(next), factors, out); }, "backward", "targets[14]");
  refused([&] { model.backward(Exec(), in, next, nowhere(factors), out); }, "backward", "dloss[14]");
  refused([&] { model.backward(Exec(), in, next, factors, nowhere(out)); }, "backward", "loss[14]");
  run.backward();
  model.forward_embedded(Exec(), states.view<2>());
  refused([&] { model.backward_embedded(Exec(), next, factors, out, nowhere(states.view<2>())); },
          "backward_embedded", "dx[14,40]");
  Exec().fence("kformer::Testing::model");
}

BOOST_AUTO_TEST_CASE(a_model_has_no_results_after_a_forward_that_failed) {
  const ModelInputs inputs = ModelInputs::random(small_model(), {2, 7});
  // In the first layer, when the hidden states of the forward before are still there, and in the second one.
  for (const int call : {1, 2}) {
    ModelUnderTest<double> run(inputs), expected(inputs);
    run.forward();
    {
      const Interruption interruption("attention_forward", call);
      BOOST_CHECK_THROW(run.forward(), Interrupted);
    }
    const TestTensor<Exec, double> logits({14, inputs.config.vocab_size});
    check_error<NotSupported>(
        [&] { run.model().logits(Exec(), logits.view<2>()); },
        "kformer::LlamaModel::logits: there are no hidden states; call forward(exec, ids) first");
    check_error<NotSupported>(
        [&] { run.backward(); },
        "kformer::LlamaModel::backward: each forward allows one backward; call forward first");
    for (auto* model : {&run, &expected}) {
      model->forward();
      model->backward();
    }
    const auto parameters = run.model().parameters(), others = expected.model().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      BOOST_TEST(
          (run.gradient<double>(parameters[i]).values() == expected.gradient<double>(others[i]).values()),
          parameters[i].name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
