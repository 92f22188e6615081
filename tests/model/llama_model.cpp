// SPDX-License-Identifier: MIT
#include "kformer/model/llama_model.hpp"

#include "model/mean_share_of_limit.hpp"
#include "model/model_cases.hpp"
#include "model/model_run.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(llama_model)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_references, T, Scalars) {
  using Oracle = oracle_t<T>;
  constexpr DType stored = dtype_of<T>, summed = dtype_of<compute_t<T>>;
  for (const ModelCase& c : model_cases()) {
    std::map<std::string, MeanShareOfLimit> share;
    for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) {
      const ModelInputs inputs = ModelInputs::random(c.config, c.shape, seed).template rounded<T>();
      const auto expected = model_reference<Oracle, Oracle>(inputs);
      const auto naive = model_reference<compute_t<T>, T>(inputs);
      ModelUnderTest<T> run(inputs);
      run.forward();
      share["logits"].add(stored, run.logits().template read<Oracle>(), expected.logits, naive.logits);
      share["loss"].add(summed, run.loss().template read<Oracle>(), expected.loss, naive.loss);
      run.backward();
      for (const Parameter& p : run.model().parameters())
        share[p.name].add(summed, run.template gradient<Oracle>(p), expected.gradients.at(p.name),
                          naive.gradients.at(p.name));
    }
    for (const auto& [name, used] : share)
      BOOST_TEST((used.max() <= 1 && used.rms() <= 1), c.name << ", " << name << ": " << used.max()
                                                              << " of the largest error allowed, " << used.rms()
                                                              << " of the rms");
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

BOOST_AUTO_TEST_CASE(parameters_have_their_published_names) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    const auto ledger = Ledger::create();
    const LlamaModel<Exec, bf16> model(c.config, c.shape, AttentionAlgorithm::flash, LayerMode::training,
                                       *ledger);
    std::int64_t elements = 0;
    std::map<std::string, int> seen;
    for (const Parameter& p : model.parameters()) {
      BOOST_TEST(inputs.weights.contains(p.name), p.name);
      BOOST_TEST(++seen[p.name] == 1, p.name);
      BOOST_TEST(p.gradient.same_extents(p.weight));
      elements += p.weight.size();
    }
    BOOST_TEST(seen.size() == inputs.weights.size());
    BOOST_TEST(elements == c.config.model_parameters());
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ledger_forecast_and_witness_agree, T, Scalars) {
  for (const ModelCase& c : model_cases())
    for (const LayerMode mode : {LayerMode::training, LayerMode::inference}) BOOST_TEST_CONTEXT(c.name) {
        const auto make = [&](const std::shared_ptr<Ledger>& ledger) {
          const LlamaModel<Exec, T> model(c.config, c.shape, AttentionAlgorithm::flash, mode, *ledger);
        };
        const auto ledger = Ledger::create(), forecast = Ledger::create(Ledger::Mode::count);
        const ToolsRecorder witness;
        make(forecast);
        BOOST_TEST(witness.allocations().empty());
        make(ledger);
        BOOST_TEST(witness.peak_bytes() == ledger->peak_total());
        BOOST_TEST(witness.current_bytes() == 0u);
        BOOST_TEST(forecast->peak_total() == ledger->peak_total());
      }
}

BOOST_AUTO_TEST_CASE(errors) {
  ModelUnderTest<float> run(ModelInputs::random(small_model(), {1, 3}), LayerMode::inference);
  check_error<NotSupported>([&] { run.backward(); },
                            "kformer::LlamaModel::backward: the model was made for inference and keeps nothing "
                            "for backward; construct it with LayerMode::training");
  LlamaConfig config = small_model();
  config.vocab_size = 0;
  const auto ledger = Ledger::create();
  check_error<DimensionMismatch>(
      [&] {
        LlamaModel<Exec, float>(config, {1, 3}, AttentionAlgorithm::flash, LayerMode::inference, *ledger);
      },
      "kformer::LlamaConfig: vocab_size must be positive, got 0");
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
