// SPDX-License-Identifier: MIT
#include "kformer/model/decoder_layer.hpp"

#include "model/booked_memory.hpp"
#include "model/layer_run.hpp"
#include "model/small_layer.hpp"
#include "support/distance.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

struct Case {
  const char* name;
  LlamaConfig config;
  LayerShape shape;
};

std::vector<Case> cases() {
  const auto with = [](auto change) {
    LlamaConfig c = small_config();
    change(c);
    return c;
  };
  return {
      {"three sequences", small_config(), {3, 7}},
      {"sequences of one token", small_config(), {6, 1}},
      {"grouped 1:4, odd sizes",
       with([](LlamaConfig& c) {
         c.num_key_value_heads = 1;
         c.intermediate_size = 61;
         c.hidden_size = 47;
       }),
       {1, 33}},
      {"head_dim 6",
       with([](LlamaConfig& c) {
         c.head_dim = 6;
         c.num_key_value_heads = 4;
       }),
       {2, 7}},
      {"window", with([](LlamaConfig& c) { c.sliding_window = 3; }), {2, 33}},
      {"bias", with([](LlamaConfig& c) { c.attention_bias = true; }), {2, 7}},
      {"norms of heads", with([](LlamaConfig& c) { c.qk_norm = true; }), {2, 7}},
      {"interleaved, scaled rotary embedding",
       with([](LlamaConfig& c) {
         c.rope.layout = RopeLayout::interleaved;
         c.rope.theta = 100;
         c.rope.scaling = {RopeType::llama3, 4, 1, 4, 16};
       }),
       {1, 33}},
  };
}

constexpr AttentionAlgorithm algorithms[] = {AttentionAlgorithm::standard, AttentionAlgorithm::flash};
const char* name_of(AttentionAlgorithm a) { return a == AttentionAlgorithm::flash ? "flash" : "standard"; }

}  // namespace

BOOST_AUTO_TEST_SUITE(decoder_layer)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_references, T, Scalars) {
  for (const Case& c : cases())
    for (const unsigned seed : {1u, 2u}) {
      const LayerInputs inputs = LayerInputs::random(c.config, c.shape, seed).template rounded<T>();
      const auto expected = inputs.template reference<naive_t<T>, T>();
      for (const AttentionAlgorithm algorithm : algorithms)
        BOOST_TEST_CONTEXT(c.name << ", " << name_of(algorithm)) {
          check_layer<T>(inputs, algorithm, expected);
        }
    }
}

// The production templates against nothing but themselves: the derivative along a random direction of each
// tensor.
BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  for (const Case& c : cases()) {
    const LayerInputs inputs = LayerInputs::random(c.config, c.shape);
    const LayerInputs direction = LayerInputs::random(c.config, c.shape, 42);
    for (const AttentionAlgorithm algorithm : algorithms) {
      const auto loss = [&](const LayerInputs& at) {
        LayerUnderTest<double> run(at, algorithm, LayerMode::inference);
        run.forward();
        return dot(run.y().template read<double>().values(), inputs.dy.values());
      };
      const auto moved = [](std::vector<double>& values, const std::vector<double>& along, double t) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += t * along[i];
      };
      LayerUnderTest<double> run(inputs, algorithm);
      run.forward();
      run.backward();
      const std::string where = std::string(c.name) + ", " + name_of(algorithm) + ", ";
      check_gradient(
          where + "x",
          [&](double t) {
            LayerInputs at = inputs;
            moved(at.x.values(), direction.x.values(), t);
            return loss(at);
          },
          dot(run.dx().template read<double>().values(), direction.x.values()));
      for (const Parameter& p : run.layer().parameters()) {
        const auto& along = direction.weights.at(p.name).values();
        check_gradient(
            where + p.name,
            [&](double t) {
              LayerInputs at = inputs;
              moved(at.weights.at(p.name).values(), along, t);
              return loss(at);
            },
            dot(run.template gradient<double>(p).values(), along));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(inference_gives_the_bits_of_training, T, Scalars) {
  for (const Case& c : cases())
    for (const AttentionAlgorithm algorithm : algorithms) {
      const LayerInputs inputs = LayerInputs::random(c.config, c.shape);
      LayerUnderTest<T> training(inputs, algorithm), inference(inputs, algorithm, LayerMode::inference);
      training.forward();
      inference.forward();
      BOOST_TEST((training.y().bits() == inference.y().bits()), c.name << ", " << name_of(algorithm));
    }
}

// Half of the space's threads (or another stream) is another order of work; the sums must not notice.
BOOST_AUTO_TEST_CASE_TEMPLATE(the_same_bits_twice_and_by_one_thread, T, Scalars) {
  for (const Case& c : cases())
    for (const AttentionAlgorithm algorithm : algorithms) {
      const LayerInputs inputs = LayerInputs::random(c.config, c.shape);
      const auto bits = [&](const Exec& exec) {
        LayerUnderTest<T> run(inputs, algorithm, LayerMode::training, exec);
        run.forward();
        run.backward();
        return run.bits();
      };
      const auto first = bits(Exec());
      BOOST_TEST((bits(Exec()) == first), c.name << ", " << name_of(algorithm) << ": a second run");
      BOOST_TEST((bits(one_thread()) == first), c.name << ", " << name_of(algorithm) << ": one thread");
    }
}

BOOST_AUTO_TEST_CASE(forward_saves_what_any_number_of_backward_calls_need) {
  const LayerInputs inputs = LayerInputs::random(small_config(), {2, 7});
  for (const AttentionAlgorithm algorithm : algorithms) {
    LayerUnderTest<double> once(inputs, algorithm), twice(inputs, algorithm);
    for (auto* run : {&once, &twice}) {
      run->forward();
      run->backward();
    }
    twice.backward();
    BOOST_TEST((twice.dx().bits() == once.dx().bits()));
    const auto parameters = once.layer().parameters(), again = twice.layer().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::vector<double> doubled = once.gradient<double>(parameters[i]).values();
      for (double& value : doubled) value *= 2;
      check_near(parameters[i].name, twice.gradient<double>(again[i]).values(), doubled,
                 16 * std::numeric_limits<double>::epsilon());
    }
  }
}

// The first token sees the last one if the layer is not causal.
BOOST_AUTO_TEST_CASE(the_heads_of_queries_and_keys_are_normalised_in_one_launch) {
  LlamaConfig config = small_config();
  config.qk_norm = true;
  const LayerInputs inputs = LayerInputs::random(config, {2, 7});
  for (const LayerMode mode : {LayerMode::training, LayerMode::inference}) {
    LayerUnderTest<float> run(inputs, AttentionAlgorithm::flash, mode);
    const ToolsRecorder recorder;
    run.forward();
    const auto launches = [&](const std::string& function) {
      return std::ranges::count_if(recorder.kernels(), [&](const ToolsRecorder::Kernel& kernel) {
        return kernel.label.starts_with("kformer::" + function + '[');
      });
    };
    BOOST_TEST(launches("qk_norm_forward") == 1);
    BOOST_TEST(launches("rms_norm_forward") == 2);  // of the attention and of the MLP
  }
}

BOOST_AUTO_TEST_CASE(causal_is_an_option) {
  const LlamaConfig config = small_config();
  const LayerInputs inputs = LayerInputs::random(config, {1, 7});
  for (const AttentionAlgorithm algorithm : algorithms)
    for (const bool causal : {true, false}) {
      const auto ledger = Ledger::create();
      DecoderLayer<Exec, double> layer(config, {1, 7}, {.attention = algorithm, .causal = causal}, *ledger);
      for (const Parameter& p : layer.parameters())
        write_parameter<double>(p.weight, inputs.weights.at(p.name));
      layer.prepare(Exec());
      const auto first_token = [&](double last) {
        TestTensor<Exec, double> x({7, config.hidden_size}), y({7, config.hidden_size});
        x.fill([&](std::size_t i) { return inputs.x.values()[i] + (i / 56 == 6 ? last : 0); });
        layer.forward(Exec(), x.view<2>(), y.view<2>());
        Exec().fence("kformer::Testing::layer");
        auto values = y.read<double>().values();
        values.resize(56);
        return values;
      };
      BOOST_TEST((first_token(0) == first_token(1)) == causal, name_of(algorithm));
    }
}

BOOST_AUTO_TEST_CASE(parameters_have_their_published_names_and_extents) {
  LlamaConfig config = small_config();
  config.attention_bias = config.qk_norm = true;
  for (const LayerMode mode : {LayerMode::training, LayerMode::inference}) {
    const auto ledger = Ledger::create();
    const DecoderLayer<Exec, bf16> layer(config, {1, 3}, {.mode = mode}, *ledger);
    const auto expected = parameter_extents(config);
    std::int64_t elements = 0;
    BOOST_TEST(layer.parameters().size() == expected.size());
    for (const Parameter& p : layer.parameters()) {
      const auto& extents = expected.at(p.name);
      BOOST_TEST(p.weight.rank == static_cast<int>(extents.size()));
      for (int r = 0; r < p.weight.rank; ++r)
        BOOST_TEST(p.weight.extent[r] == extents[static_cast<std::size_t>(r)]);
      BOOST_TEST((p.weight.dtype == DType::bf16));
      BOOST_TEST(p.gradient.present() == (mode == LayerMode::training));
      if (p.gradient.present()) {
        BOOST_TEST(p.gradient.same_extents(p.weight));
        BOOST_TEST((p.gradient.dtype == DType::f32));
      }
      elements += p.weight.size();
    }
    BOOST_TEST(elements == config.parameter_count());
  }
}

BOOST_AUTO_TEST_CASE(errors) {
  const LayerInputs inputs = LayerInputs::random(small_config(), {2, 7});
  LayerUnderTest<float> run(inputs, AttentionAlgorithm::flash, LayerMode::inference);
  check_error<NotSupported>(
      [&] { run.backward(); },
      "kformer::DecoderLayer::backward: the layer was made for inference and keeps nothing "
      "for backward; construct it with LayerMode::training");
  const TestTensor<Exec, float> x({13, 56}), y({14, 56});
  check_error<DimensionMismatch>([&] { run.layer().forward(Exec(), x.view<2>(), y.view<2>()); },
                                 "kformer::DecoderLayer::forward: extents do not match: x[13,56]; expected "
                                 "x[14,56]");
  check_error<DimensionMismatch>([&] { run.layer().forward(Exec(), y.view<2>(), x.view<2>()); },
                                 "kformer::DecoderLayer::forward: extents do not match: y[13,56]; expected "
                                 "y[14,56]");
  const auto ledger = Ledger::create();
  DecoderLayer<Exec, float> fresh(small_config(), {2, 7}, {}, *ledger);
  const TestTensor<Exec, float> x14({14, 56});
  check_error<NotSupported>([&] { fresh.forward(Exec(), x14.view<2>(), y.view<2>()); },
                            "kformer::DecoderLayer::forward: the rotary tables are empty; call prepare(exec) "
                            "once, before the first forward");
  fresh.prepare(Exec());
  check_error<NotSupported>(
      [&] { fresh.backward(Exec(), x14.view<2>(), y.view<2>(), y.view<2>()); },
      "kformer::DecoderLayer::backward: there was no forward; call forward(exec, x, y) first");
  check_error<DimensionMismatch>([&] { DecoderLayer<Exec, float>(small_config(), {-1, 7}, {}, *ledger); },
                                 "kformer::DecoderLayer: batch is -1; it must not be negative");
  LlamaConfig no_base = small_config();
  no_base.rope.theta = 0;
  check_error<NotSupported>([&] { DecoderLayer<Exec, float>(no_base, {2, 7}, {}, *ledger); },
                            "kformer::DecoderLayer: theta must be positive, got 0.000000");
  const auto option_refused = [&](const LayerOptions& options, const std::string& sentence) {
    check_error<NotSupported>([&] { DecoderLayer<Exec, float>(small_config(), {2, 7}, options, *ledger); },
                              "kformer::DecoderLayer: " + sentence);
  };
  const std::string unnamed = " has the value 7, which its type does not name; choose one of: ";
  option_refused({.attention = static_cast<AttentionAlgorithm>(7)}, "attention" + unnamed + "standard, flash");
  option_refused({.mode = static_cast<LayerMode>(7)}, "mode" + unnamed + "inference, training");
  option_refused({.compute = static_cast<Precision>(7)}, "compute" + unnamed + "storage, full");
  DecoderLayer<Exec, float> from(small_config(), {2, 7}, {}, *ledger);
  const DecoderLayer<Exec, float> to = moved_out_of(from);
  const std::string gone = ": the object was moved from and has no memory; use the one it was moved to";
  check_error<NotSupported>([&] { from.prepare(Exec()); }, "kformer::DecoderLayer::prepare" + gone);
  check_error<NotSupported>([&] { from.forward(Exec(), x14.view<2>(), x14.view<2>()); },
                            "kformer::DecoderLayer::forward" + gone);
  check_error<NotSupported>([&] { from.backward(Exec(), x14.view<2>(), x14.view<2>(), x14.view<2>()); },
                            "kformer::DecoderLayer::backward" + gone);
  check_error<NotSupported>([&] { from.parameters(); }, "kformer::DecoderLayer::parameters" + gone);
  check_error<DimensionMismatch>(
      [&] { DecoderLayer<Exec, float>(small_config(), {2, 6}, {}, *ledger, &fresh); },
      "kformer::DecoderLayer: `share_with` was made for another configuration, shape or options; make layers "
      "that "
      "share with the same ones");
}

BOOST_AUTO_TEST_CASE(outputs_that_share_memory_are_refused) {
  const LayerInputs inputs = LayerInputs::random(small_config(), {2, 7});
  const TestTensor<Exec, float> x({14, 56}), dy({14, 56});
  const auto shares = [](auto call, const std::string& sentence) {
    check_error<DimensionMismatch>(call, "kformer::DecoderLayer::" + sentence);
  };
  for (const LayerMode mode : {LayerMode::training, LayerMode::inference}) {
    LayerUnderTest<float> run(inputs, AttentionAlgorithm::flash, mode);
    shares([&] { run.layer().forward(Exec(), x.view<2>(), x.view<2>()); },
           "forward: y shares memory with x; pass a separate View: x[14,56] y[14,56]");
  }
  LayerUnderTest<float> run(inputs, AttentionAlgorithm::flash);
  run.forward();
  const auto backward = [&](const auto& dx) {
    return [&] { run.layer().backward(Exec(), x.view<2>(), dy.view<2>(), dx.template view<2>()); };
  };
  const std::string operands = "; pass a separate View: x[14,56] dy[14,56] dx[14,56]";
  shares(backward(x), "backward: dx shares memory with x" + operands);
  shares(backward(dy), "backward: dx shares memory with dy" + operands);
}

// A gradient that was accumulated cannot be taken back.
BOOST_AUTO_TEST_CASE(nothing_is_accumulated_before_everything_is_checked) {
  LayerUnderTest<float> run(LayerInputs::random(small_config(), {2, 7}), AttentionAlgorithm::flash);
  run.forward();
  const auto before = run.bits();
  const TestTensor<Exec, float> t({14, 56}), dx({14, 56}), wrong({13, 56});
  const auto refused = [&](const auto& x, const auto& dy, const auto& gradient, const std::string& role) {
    check_error<DimensionMismatch>(
        [&] {
          run.layer().backward(Exec(), x.template view<2>(), dy.template view<2>(),
                               gradient.template view<2>());
        },
        "kformer::DecoderLayer::backward: extents do not match: " + role + "[13,56]; expected " + role +
            "[14,56]");
    Exec().fence("kformer::Testing::layer");
    BOOST_TEST((run.bits() == before), role);
  };
  refused(wrong, t, dx, "x");
  refused(t, wrong, dx, "dy");
  refused(t, t, wrong, "dx");
}

BOOST_AUTO_TEST_CASE(documents_that_do_not_fit_are_refused) {
  const auto ledger = Ledger::create();
  DecoderLayer<Exec, float> layer(small_config(), {2, 7}, {.packed = true}, *ledger);
  layer.prepare(Exec());
  const TestTensor<Exec, float> x({14, 56}), y({14, 56});
  TestTensor<Exec, std::int32_t> starts({2}), positions({13});
  check_error<DimensionMismatch>(
      [&] { layer.forward(Exec(), x.view<2>(), y.view<2>(), {starts.view<1>(), positions.view<1>()}); },
      "kformer::DecoderLayer::forward: extents do not match: starts[2] positions[13]; expected starts of at "
      "least one document and the end of the last, and positions of 14 tokens (batch x seq_len)");
}

BOOST_AUTO_TEST_CASE(an_invalid_layer_books_nothing) {
  const auto ledger = Ledger::create();
  BOOST_CHECK_THROW((DecoderLayer<Exec, float>({}, {1, 1}, {.mode = LayerMode::inference}, *ledger)),
                    DimensionMismatch);
  BOOST_TEST(ledger->current_total() == 0u);
}

// The ledger, the forecast and Kokkos' own count of the bytes.
BOOST_AUTO_TEST_CASE_TEMPLATE(ledger_forecast_and_witness_agree, T, Scalars) {
  for (const Case& c : cases())
    for (const AttentionAlgorithm algorithm : algorithms)
      for (const LayerMode mode : {LayerMode::training, LayerMode::inference})
        BOOST_TEST_CONTEXT(c.name << ", " << name_of(algorithm)) {
          const std::vector<std::int64_t> extents{c.shape.rows(), c.config.hidden_size};
          const TestTensor<Exec, T> x(extents), y(extents), dy(extents), dx(extents);
          const auto live = [&](const std::shared_ptr<Ledger>& ledger) {
            DecoderLayer<Exec, T> layer(c.config, c.shape, {.attention = algorithm, .mode = mode}, *ledger);
            if (ledger->counts_only()) return;
            layer.prepare(Exec());
            layer.forward(Exec(), x.template view<2>(), y.template view<2>());
            if (mode == LayerMode::training) {
              layer.zero_gradients(Exec());
              layer.backward(Exec(), x.template view<2>(), dy.template view<2>(), dx.template view<2>());
            }
          };
          live(Ledger::create());  // the space's own scratch memory is set up now
          const auto [ledger, forecast] = check_booked_memory(live);
          for (int i = 0; i < memory_classes; ++i) {
            const auto memory_class = static_cast<MemoryClass>(i);
            BOOST_TEST(forecast->peak(memory_class) == ledger->peak(memory_class), to_string(memory_class));
          }
          BOOST_TEST(ledger->peak(MemoryClass::weights) > 0u);
          BOOST_TEST((ledger->peak(MemoryClass::gradients) > 0u) == (mode == LayerMode::training));
        }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
