// SPDX-License-Identifier: MIT
#include "kformer/model/llama_model.hpp"

#include <algorithm>

#include "model/booked_memory.hpp"
#include "model/model_cases.hpp"
#include "model/model_run.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/read_operand.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(llama_model)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_references, T, Scalars) {
  for (const ModelCase& c : model_cases())
    for (const unsigned seed : {1u, 2u}) BOOST_TEST_CONTEXT(c.name) {
        const ModelInputs inputs = ModelInputs::random(c.config, c.shape, seed).template rounded<T>();
        const auto expected = model_reference<naive_t<T>, T>(inputs);
        ModelUnderTest<T> run(inputs);
        run.forward();
        check_close("logits", run.logits(), expected.logits);
        check_close("loss", run.loss(), expected.loss);
        run.backward();
        for (const Parameter& p : run.model().parameters())
          check_close<compute_t<T>>(p.name, run.template gradient<oracle_t<T>>(p),
                                    expected.gradients.at(p.name));
      }
}

BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    const ModelInputs direction = ModelInputs::random(c.config, c.shape, 42);
    ModelUnderTest<double> run(inputs);
    run.forward();
    run.backward();
    for (const Parameter& p : run.model().parameters()) {
      const auto& along = direction.weights.at(p.name).values();
      const auto loss = [&](double t) {
        ModelInputs at = inputs;
        auto& values = at.weights.at(p.name).values();
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += t * along[i];
        ModelUnderTest<double> moved(at, LayerMode::inference);
        moved.forward();
        const auto losses = moved.loss().read<double>();
        return std::accumulate(losses.values().begin(), losses.values().end(), 0.0) /
               static_cast<double>(c.shape.rows());
      };
      // A single token attends only to itself, for any queries and keys.
      const auto gradient = dot(run.gradient<double>(p).values(), along);
      if (c.shape.seq_len == 1 &&
          (p.name.find("q_proj") != p.name.npos || p.name.find("k_proj") != p.name.npos))
        BOOST_TEST(gradient == 0, p.name);
      else
        check_gradient(std::string(c.name) + ", " + p.name, loss, gradient);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(inference_gives_the_bits_of_training, T, Scalars) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    ModelUnderTest<T> training(inputs), inference(inputs, LayerMode::inference);
    training.forward();
    inference.forward();
    BOOST_TEST((training.logits().bits() == inference.logits().bits()), c.name);
    BOOST_TEST((training.loss().bits() == inference.loss().bits()), c.name);
  }
}

/// The embeddings of a model's tokens, as a host would look them up.
TestTensor<Exec, double> embeddings_of(const ModelInputs& inputs) {
  TestTensor<Exec, double> x({inputs.shape.rows(), inputs.config.hidden_size});
  const auto& table = inputs.weights.at("model.embed_tokens.weight");
  const auto hidden = static_cast<std::size_t>(inputs.config.hidden_size);
  x.fill([&](std::size_t i) { return table(inputs.ids[i / hidden], static_cast<std::int64_t>(i % hidden)); });
  return x;
}

BOOST_AUTO_TEST_CASE(embeddings_take_the_place_of_tokens) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    ModelUnderTest<double> by_ids(inputs), embedded(inputs);
    TestTensor<Exec, double> x = embeddings_of(inputs);
    by_ids.forward();
    embedded.forward_embedded(x);
    BOOST_TEST((embedded.logits().bits() == by_ids.logits().bits()), c.name);
    BOOST_TEST((embedded.loss().bits() == by_ids.loss().bits()), c.name);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_embeddings_are_derivatives) {
  const CrossEntropyOptions options{.label_smoothing = 0.1, .z_loss = 1e-2};
  for (const ModelCase& c : model_cases()) BOOST_TEST_CONTEXT(c.name) {
      const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
      ModelUnderTest<double> run(inputs);
      TestTensor<Exec, double> x = embeddings_of(inputs);
      const TestTensor<Exec, double> dx({c.shape.rows(), c.config.hidden_size});
      run.forward_embedded(x, options);
      run.backward_embedded(dx, options);
      const auto loss = [&] {
        run.forward_embedded(x, options);
        const auto losses = run.loss().read<double>();
        return std::accumulate(losses.values().begin(), losses.values().end(), 0.0) /
               static_cast<double>(c.shape.rows());
      };
      std::mt19937 generator(20261122);
      check_gradient_of("x", x, dx, generator, loss);
      for (const Parameter& p : run.model().parameters())
        if (p.name == "model.embed_tokens.weight" && !c.config.tie_word_embeddings) {
          const auto gradient = run.gradient<double>(p);
          BOOST_TEST(std::ranges::all_of(gradient.values(), [](double d) { return d == 0; }));
        }
    }
}

BOOST_AUTO_TEST_CASE(parameters_have_their_published_names) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    const auto ledger = Ledger::create();
    const LlamaModel<Exec, bf16> model(c.config, c.shape, {}, *ledger);
    std::int64_t elements = 0;
    std::map<std::string, int> seen;
    for (const Parameter& p : model.parameters()) {
      BOOST_TEST(inputs.weights.contains(p.name), p.name);
      BOOST_TEST(++seen[p.name] == 1, p.name);
      BOOST_TEST(p.gradient.same_extents(p.weight));
      elements += p.weight.size();
    }
    BOOST_TEST(seen.size() == inputs.weights.size());
    BOOST_TEST(elements == c.config.model_parameter_count());
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ledger_forecast_and_witness_agree, T, Scalars) {
  for (const ModelCase& c : model_cases())
    for (const LayerMode mode : {LayerMode::training, LayerMode::inference}) BOOST_TEST_CONTEXT(c.name) {
        const auto make = [&](const std::shared_ptr<Ledger>& ledger) {
          const LlamaModel<Exec, T> model(c.config, c.shape, {.mode = mode}, *ledger);
        };
        check_booked_memory(make);
      }
}

BOOST_AUTO_TEST_CASE(errors) {
  ModelUnderTest<float> run(ModelInputs::random(small_model(), {1, 3}), LayerMode::inference);
  check_error<NotSupported>([&] { run.backward(); },
                            "kformer::LlamaModel::backward: the model was made for inference and keeps nothing "
                            "for backward; construct it with LayerMode::training");
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> fresh(small_model(), {1, 3}, {}, *ledger);
  TestTensor<Exec, std::int32_t> ids({3});
  ids.fill([](std::size_t i) { return static_cast<std::int32_t>(i); });
  const TestTensor<Exec, float> x({3, small_model().hidden_size}), loss({3}), dloss({3});
  const auto forward = [&] { fresh.forward(Exec(), ids.view<1>()); };
  const auto backward = [&] {
    fresh.backward(Exec(), ids.view<1>(), ids.view<1>(), dloss.view<1>(), loss.view<1>());
  };
  const auto refused = [](auto call, const std::string& sentence) {
    check_error<NotSupported>(call, "kformer::LlamaModel::" + sentence);
  };
  refused(forward, "forward: the rotary tables are empty; call prepare(exec) once, before the first forward");
  fresh.prepare(Exec());
  refused([&] { fresh.loss(Exec(), ids.view<1>(), loss.view<1>()); },
          "loss: there are no hidden states; call forward(exec, ids) first");
  const std::string once = "backward: each forward allows one backward; call forward first";
  refused(backward, once);
  forward();
  backward();
  refused(backward, once);
  fresh.forward_embedded(Exec(), x.view<2>());
  refused(backward, once);
  forward();
  refused([&] { fresh.backward_embedded(Exec(), ids.view<1>(), dloss.view<1>(), loss.view<1>(), x.view<2>()); },
          "backward_embedded: each forward_embedded allows one backward_embedded; call forward_embedded first");
  const TestTensor<Exec, float> wrong({4, small_model().hidden_size});
  const std::string columns = std::to_string(small_model().hidden_size);
  check_error<DimensionMismatch>([&] { fresh.forward_embedded(Exec(), wrong.view<2>()); },
                                 "kformer::LlamaModel::forward_embedded: extents do not match: x[4," + columns +
                                     "]; expected x to have 3 rows (batch x seq_len) and " + columns +
                                     " columns (hidden_size)");
}

BOOST_AUTO_TEST_CASE(a_model_that_was_moved_from_is_refused) {
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> from(small_model(), {1, 3}, {}, *ledger);
  from.prepare(Exec());
  const TestTensor<Exec, std::int32_t> ids({3});
  const TestTensor<Exec, float> numbers({3});
  from.forward(Exec(), ids.view<1>());
  LlamaModel<Exec, float> to = moved_out_of(from);
  const auto refused = [](auto call, const std::string& function) {
    check_error<NotSupported>(call,
                              "kformer::LlamaModel::" + function +
                                  ": the object was moved from and has no memory; use the one it was moved to");
  };
  refused([&] { from.prepare(Exec()); }, "prepare");
  refused([&] { from.parameters(); }, "parameters");
  refused([&] { from.zero_gradients(Exec()); }, "zero_gradients");
  refused([&] { from.forward(Exec(), ids.view<1>()); }, "forward");
  refused([&] { from.loss(Exec(), ids.view<1>(), numbers.view<1>()); }, "loss");
  const TestTensor<Exec, float> loss({3});
  const auto backward = [&](LlamaModel<Exec, float>& model) {
    model.backward(Exec(), ids.view<1>(), ids.view<1>(), numbers.view<1>(), loss.view<1>());
  };
  refused([&] { backward(from); }, "backward");
  backward(to);
}

BOOST_AUTO_TEST_CASE(extents_that_do_not_match_are_refused) {
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> model(small_model(), {1, 3}, {}, *ledger);
  model.prepare(Exec());
  const std::int64_t vocabulary = small_model().vocab_size;
  TestTensor<Exec, std::int32_t> three({3}), four({4});
  for (auto* ids : {&three, &four}) ids->fill([](std::size_t) { return 0; });
  const TestTensor<Exec, float> loss({3}), dloss({3}), long_loss({4}), logits({4, vocabulary}),
      x({3, small_model().hidden_size});
  const auto i = three.view<1>(), wrong = four.view<1>();
  const auto l = loss.view<1>(), d = dloss.view<1>(), wrong_loss = long_loss.view<1>();
  const auto refused = [&](auto call, const std::string& function, const std::string& role) {
    check_error<DimensionMismatch>(call, "kformer::LlamaModel::" + function + ": extents do not match: " +
                                             role + "[4]; expected " + role + "[3]");
  };
  refused([&] { model.forward(Exec(), wrong); }, "forward", "ids");
  model.forward(Exec(), i);
  const std::string words = "," + std::to_string(vocabulary) + "]";
  const auto refused_logits = [&](auto call, const std::string& rows) {
    check_error<DimensionMismatch>(call, "kformer::LlamaModel::logits: extents do not match: logits[4" + words +
                                             "; expected logits[" + rows + words);
  };
  refused_logits([&] { model.logits(Exec(), logits.view<2>()); }, "3");
  refused_logits([&] { model.logits(Exec(), 1, logits.view<2>()); }, "1");
  for (const std::int64_t token : {-1, 3})
    check_error<DimensionMismatch>([&] { model.logits(Exec(), token, logits.view<2>()); },
                                   "kformer::LlamaModel::logits: token " + std::to_string(token) +
                                       " is outside the 3 tokens of the model; expected 0 to 2");
  refused([&] { model.loss(Exec(), wrong, l); }, "loss", "targets");
  refused([&] { model.loss(Exec(), i, wrong_loss); }, "loss", "loss");
  refused([&] { model.backward(Exec(), wrong, i, d, l); }, "backward", "ids");
  refused([&] { model.backward(Exec(), i, wrong, d, l); }, "backward", "targets");
  refused([&] { model.backward(Exec(), i, i, wrong_loss, l); }, "backward", "dloss");
  refused([&] { model.backward(Exec(), i, i, d, wrong_loss); }, "backward", "loss");
  BOOST_CHECK_NO_THROW(model.backward(Exec(), i, i, d, l));  // what was refused has used nothing up
  model.forward_embedded(Exec(), x.view<2>());
  refused([&] { model.backward_embedded(Exec(), i, d, wrong_loss, x.view<2>()); }, "backward_embedded", "loss");
}

BOOST_AUTO_TEST_CASE(a_model_may_have_no_tokens) {
  const auto ledger = Ledger::create();
  const TestTensor<Exec, std::int32_t> ids({0});
  const TestTensor<Exec, float> numbers({0}), logits({0, small_model().vocab_size});
  for (const LayerShape shape : {LayerShape{0, 3}, LayerShape{2, 0}})
    for (const bool packed : {false, true}) {
      LlamaModel<Exec, float> model(small_model(), shape, {.packed = packed}, *ledger);
      model.prepare(Exec());
      TestTensor<Exec, std::int32_t> starts({2});  // one document, without tokens
      starts.fill([](std::size_t) { return 0; });
      model.forward(Exec(), ids.view<1>(), {.starts = starts.view<1>(), .positions = ids.view<1>()});
      model.logits(Exec(), logits.view<2>());
      model.loss(Exec(), ids.view<1>(), numbers.view<1>());
      model.backward(Exec(), ids.view<1>(), ids.view<1>(), numbers.view<1>(), numbers.view<1>());
      for (const Parameter& p : model.parameters()) {
        const auto gradient = read_operand<double>(p.gradient);
        for (const double g : gradient.values()) BOOST_TEST(g == 0, p.name);
      }
    }
}

BOOST_AUTO_TEST_CASE(quantised_weights_are_projections_beside_adapters) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const auto make = [&](const LoraConfig& lora, const std::string& name) {
    LlamaModel<Exec, float>(model_cases().front().config, {1, 3},
                            {.lora = lora, .formats = {{name, QuantizedFormat::nf4}}}, *ledger);
  };
  const std::string q = "model.layers.0.self_attn.q_proj.weight", head = "lm_head.weight";
  make(LoraConfig::all(2, 4), q);
  check_error<NotSupported>(
      [&] { make({}, q); },
      "kformer::LlamaModel: formats: " + q +
          " stays quantised (NF4), but quantised weights do not learn and there are no adapters; "
          "set `lora`, or expand the weights; LlamaDecoder generates with quantised ones");
  check_error<NotSupported>(
      [&] { make(LoraConfig::all(2, 4), head); },
      "kformer::LlamaModel: formats: 'lm_head.weight' is no projection of a layer, whose weights "
      "alone stay quantised in training; use published names, such as "
      "model.layers.0.self_attn.q_proj.weight");
}

BOOST_AUTO_TEST_CASE(an_invalid_model_books_nothing) {
  LlamaConfig config = small_model();
  config.vocab_size = 0;
  const auto ledger = Ledger::create();
  check_error<DimensionMismatch>([&] { LlamaModel<Exec, float>(config, {1, 3}, {}, *ledger); },
                                 "kformer::LlamaConfig: vocab_size must be positive, got 0");
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
