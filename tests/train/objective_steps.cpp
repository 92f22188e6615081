// SPDX-License-Identifier: MIT
// Steps of Trainer whose loss is a function of log-probabilities.
#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "kformer/train/preference_loss.hpp"
#include "support/distance.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/tools.hpp"
#include "train/training_run.hpp"

namespace kformer::Testing {
namespace {

constexpr std::int64_t seq_len = TrainingRun<float>::seq_len;
constexpr PreferenceOptions dpo{.beta = 0.3, .label_smoothing = 0.1};

TrainerOptions adapted_options(std::int64_t batch = 2) {
  TrainerOptions options = some_trainer_options(batch);
  options.layer.lora = LoraConfig::all(3, 6);
  options.layer.lora[Projection::o] = {.rank = 0, .alpha = 0};
  return options;
}

/// The objective that is the mean loss over so many targets.
Objective mean_loss(double count) {
  return [=](std::size_t, const LogProbabilities& logp) {
    ObjectiveShare share{.loss = 0, .dlogp = std::vector<double>(logp.values.size(), -1 / count)};
    for (const double value : logp.values) share.loss -= value / count;
    return share;
  };
}

/// Log-probabilities of a reference model that is close to the policy, but not the same.
template <class T>
std::vector<double> references_of(TrainingRun<T>& run, const std::vector<TokenSequence>& sequences) {
  const LogProbabilities logp = run.trainer.log_probabilities(Exec(), sequences);
  std::vector<double> references;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    references.push_back(logp.sum(i) + (i % 3 == 0 ? 0.7 : -0.4));
  return references;
}

std::vector<double> gradient(const TrainingRun<double>& run) {
  std::vector<double> all;
  auto& trainer = const_cast<Trainer<Exec, double>&>(run.trainer);
  for (const Parameter& p : trainer.model().trained()) {
    const auto values = read_gradient<double, double>(p).values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void check_equal(const std::vector<double>& found, const std::vector<double>& expected) {
  check_near("gradients", found, expected, 1e-12);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(objective_steps)

BOOST_AUTO_TEST_CASE_TEMPLATE(the_mean_loss_as_objective_gives_the_bits_of_the_usual_step, T, Scalars) {
  for (TrainerOptions options : {some_trainer_options(), adapted_options()}) {
    options.optimizer.loss_scaling = LossScaling{.initial = 1024, .growth_interval = 2};
    auto usual = run_of<T>(options), run = run_of<T>(options);
    for (unsigned t = 0; t < 3; ++t) {
      const auto sequences = random_sequences(5, seq_len, 100 + t);
      const StepReport expected = usual.step(sequences);
      const StepReport report =
          run.trainer.step(Exec(), sequences, mean_loss(static_cast<double>(expected.tokens)));
      BOOST_TEST(std::abs(report.loss - expected.loss) <= 1e-14 * expected.loss);
      BOOST_TEST(report.gradient_norm == expected.gradient_norm);
      BOOST_TEST(report.tokens == expected.tokens);
      BOOST_TEST(report.step == expected.step);
      BOOST_TEST(report.learning_rate == expected.learning_rate);
      BOOST_TEST(report.loss_scale == expected.loss_scale);
      BOOST_TEST(!report.skipped);
    }
    BOOST_TEST((run.bits() == usual.bits()));
    BOOST_TEST(run.trainer.steps_done() == 3);
  }
}

// Each parameter along a random direction.
BOOST_AUTO_TEST_CASE(gradients_of_a_preference_step_are_those_of_its_loss) {
  for (TrainerOptions options : {some_trainer_options(), adapted_options()}) {
    options.schedule = {.learning_rate = 0};
    const auto sequences = random_sequences(6, seq_len, 3);
    for (const PreferenceOptions& kind : {dpo, PreferenceOptions{.kind = PreferenceKind::ipo, .beta = 0.2}}) {
      auto run = run_of<double>(options);
      const auto references = references_of(run, sequences);
      PreferenceObjective objective(references, kind);
      const StepReport report = run.trainer.step(Exec(), sequences, std::ref(objective));
      BOOST_TEST(report.loss == objective.result().loss);
      BOOST_TEST(objective.result().pairs.size() == 3u);
      std::mt19937 generator(5);
      for (const Parameter& p : run.trainer.model().trained()) {
        const auto size = static_cast<std::size_t>(p.weight.size());
        const auto weight = flat_view<double>(p.weight);
        const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, weight);
        const std::vector<double> start(host.data(), host.data() + size);
        std::vector<double> direction(size);
        std::normal_distribution<double> normal;
        for (double& d : direction) d = normal(generator) / std::sqrt(static_cast<double>(size));
        const auto loss = [&](double h) {
          auto moved = Kokkos::create_mirror_view(Kokkos::HostSpace{}, weight);
          for (std::size_t i = 0; i < size; ++i) moved(i) = start[i] + h * direction[i];
          Kokkos::deep_copy(weight, moved);
          PreferenceObjective again(references, kind);
          again(0, run.trainer.log_probabilities(Exec(), sequences));
          for (std::size_t i = 0; i < size; ++i) moved(i) = start[i];
          Kokkos::deep_copy(weight, moved);
          return again.result().loss;
        };
        check_gradient(p.name, loss, dot(read_gradient<double, double>(p).values(), direction));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(micro_batches_of_any_size_give_the_same) {
  const auto sequences = random_sequences(10, seq_len, 3);
  auto whole = run_of<double>(adapted_options(10));
  const auto references = references_of(whole, sequences);
  PreferenceObjective expected(references, dpo);
  const StepReport of_whole = whole.trainer.step(Exec(), sequences, std::ref(expected));
  for (const std::int64_t batch : {2, 4, 6, 12}) BOOST_TEST_CONTEXT("micro-batches of " << batch) {
      auto run = run_of<double>(adapted_options(batch));
      PreferenceObjective objective(references, dpo);
      const StepReport report = run.trainer.step(Exec(), sequences, std::ref(objective));
      check_equal(gradient(run), gradient(whole));
      check_equal({report.loss, report.gradient_norm}, {of_whole.loss, of_whole.gradient_norm});
      const PreferenceLoss &a = objective.result(), &b = expected.result();
      check_equal({a.loss, a.accuracy, a.margin, a.chosen_reward, a.rejected_reward},
                  {b.loss, b.accuracy, b.margin, b.chosen_reward, b.rejected_reward});
      BOOST_TEST(a.pairs.size() == b.pairs.size());
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_layers_keep_changes_no_bit, T, Scalars) {
  const auto sequences = random_sequences(4, seq_len, 3);
  const auto bits_with = [&](const TrainerOptions& options) {
    auto run = run_of<T>(options);
    for (int t = 0; t < 2; ++t) {
      const LogProbabilities base = run.trainer.log_probabilities(Exec(), sequences, AdapterUse::off);
      PreferenceObjective objective({base.sum(0), base.sum(1), base.sum(2), base.sum(3)}, dpo);
      BOOST_TEST(!run.trainer.step(Exec(), sequences, std::ref(objective)).skipped);
    }
    return run.bits();
  };
  for (const TrainerOptions& of_model : {some_trainer_options(4), adapted_options(4)}) {
    TrainerOptions options = of_model;
    const auto expected = bits_with(options);
    for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::nested})
      for (const bool accumulate : {true, false}) {
        options.layer.recompute = kind;
        options.layer.accumulate = accumulate;
        BOOST_TEST((bits_with(options) == expected), name_of(kind) << (accumulate ? "" : ", overwritten"));
      }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(adapters_that_are_off_leave_the_model_without_them, T, Scalars) {
  const auto sequences = random_sequences(5, seq_len, 7);
  for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer}) {
    TrainerOptions options = adapted_options(), without = some_trainer_options();
    options.layer.recompute = without.layer.recompute = kind;
    auto run = run_of<T>(options), base = run_of<T>(without), undisturbed = run_of<T>(options);
    const LogProbabilities expected = base.trainer.log_probabilities(Exec(), sequences);
    for (int t = 0; t < 2; ++t) {
      const LogProbabilities on = run.trainer.log_probabilities(Exec(), sequences);
      const LogProbabilities off = run.trainer.log_probabilities(Exec(), sequences, AdapterUse::off);
      BOOST_TEST((off.values == expected.values));
      BOOST_TEST((off.offsets == expected.offsets));
      BOOST_TEST((on.values != off.values));
      BOOST_TEST((run.trainer.log_probabilities(Exec(), sequences).values == on.values));
      BOOST_TEST(run.step(sequences).loss == undisturbed.step(sequences).loss);
    }
    BOOST_TEST((run.bits() == undisturbed.bits()));
    BOOST_TEST((base.trainer.log_probabilities(Exec(), sequences, AdapterUse::off).values == expected.values));
  }
}

BOOST_AUTO_TEST_CASE(log_probabilities_are_those_of_the_targets) {
  auto run = run_of<double>(some_trainer_options());
  const auto sequences = random_sequences(5, seq_len, 7);
  const LogProbabilities logp = run.trainer.log_probabilities(Exec(), sequences);
  BOOST_TEST((logp.offsets == std::vector<std::int64_t>{0, 6, 11, 15, 18, 24}));
  BOOST_TEST(logp.sequences() == 5u);
  double sum = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const double of_one = run.trainer.evaluate(Exec(), {&sequences[i], 1});
    BOOST_TEST(std::abs(logp.sum(i) + of_one * static_cast<double>(logp.of(i).size())) <= 1e-12 * of_one);
    sum += logp.sum(i);
  }
  BOOST_TEST(std::abs(run.trainer.evaluate(Exec(), sequences) + sum / 24) <= 1e-12);
}

// Attention is a part of every layer's forward, and of no backward without recomputation.
BOOST_AUTO_TEST_CASE(layers_compute_forward_once) {
  TrainerOptions options = adapted_options();
  options.layer.recompute = Recompute::none;
  auto run = run_of<float>(options);
  const auto launches = [&](auto step) {
    const ToolsRecorder recorder;
    step();
    return std::ranges::count_if(recorder.kernels(), [](const ToolsRecorder::Kernel& kernel) {
      return kernel.label.find("attention_forward") != std::string::npos;
    });
  };
  const auto sequences = random_sequences(4, seq_len, 7);
  const auto usual = launches([&] { run.step(sequences); });
  BOOST_TEST(usual > 0);
  BOOST_TEST(launches([&] { static_cast<void>(run.trainer.step(Exec(), sequences, mean_loss(20))); }) == usual);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(steps_with_an_objective_take_no_memory_beyond_the_forecast, T, Scalars) {
  for (const TrainerOptions& options : {some_trainer_options(), adapted_options()}) {
    const auto forecast = Ledger::create(Ledger::Mode::count);
    {
      const Trainer<Exec, T> trainer(small_model(), options, *forecast);
    }
    auto run = run_of<T>(options);
    const auto sequences = random_sequences(6, seq_len);
    run.trainer.log_probabilities(Exec(), sequences, AdapterUse::off);
    static_cast<void>(run.trainer.step(Exec(), sequences, mean_loss(30)));
    for (int c = 0; c < memory_classes; ++c)
      BOOST_TEST(run.ledger->peak(static_cast<MemoryClass>(c)) == forecast->peak(static_cast<MemoryClass>(c)));
  }
}

BOOST_AUTO_TEST_CASE(steps_are_skipped_as_usual) {
  TrainerOptions options = adapted_options();
  options.optimizer.loss_scaling = LossScaling{.initial = 0x1p24};  // too large for the activations' gradients
  auto run = run_of<f16>(options);
  const auto before = run.bits();
  const auto sequences = random_sequences(4, seq_len);
  const StepReport overflow = run.trainer.step(Exec(), sequences, mean_loss(1));
  BOOST_TEST(overflow.skipped);
  BOOST_TEST(!std::isfinite(overflow.gradient_norm));
  BOOST_TEST(std::isfinite(overflow.loss));
  BOOST_TEST((run.bits() == before));
  BOOST_TEST(run.trainer.state().optimizer.loss_scale == 0x1p23);

  options = adapted_options();
  options.spikes = {.loss_z = 4, .window = 5};
  auto other = run_of<float>(options);
  for (int t = 0; t < 8; ++t)
    BOOST_TEST(!other.trainer.step(Exec(), sequences, mean_loss(t % 2 == 0 ? 20 : 21)).skipped);
  const auto calm = other.bits();
  const StepReport spike = other.trainer.step(Exec(), sequences, mean_loss(1));
  BOOST_TEST(spike.skipped);
  BOOST_TEST((other.bits() == calm));
  BOOST_TEST(other.trainer.state().optimizer.skipped == 1);

  auto empty = sequences;
  for (TokenSequence& s : empty) s.targets.assign(s.targets.size(), -100);
  const StepReport nothing = other.trainer.step(
      Exec(), empty, [](auto...) -> ObjectiveShare { throw std::logic_error("there is nothing to learn"); });
  BOOST_TEST(nothing.skipped);
  BOOST_TEST(std::isnan(nothing.loss));
  BOOST_TEST(other.trainer.steps_done() == 10);
}

BOOST_AUTO_TEST_CASE(a_step_whose_objective_throws_was_not_made) {
  auto run = run_of<double>(adapted_options()), undisturbed = run_of<double>(adapted_options());
  const auto sequences = random_sequences(4, seq_len);
  const auto before = run.bits();
  int calls = 0;
  const Objective throws = [&](std::size_t, const LogProbabilities& logp) {
    if (++calls == 2) throw std::runtime_error("judge");
    return ObjectiveShare{.loss = 1, .dlogp = std::vector<double>(logp.values.size(), 1)};
  };
  BOOST_CHECK_THROW(static_cast<void>(run.trainer.step(Exec(), sequences, throws)), std::runtime_error);
  BOOST_TEST(calls == 2);
  BOOST_TEST((run.bits() == before));
  BOOST_TEST(run.trainer.steps_done() == 0);
  BOOST_TEST(run.step(sequences).loss == undisturbed.step(sequences).loss);
  BOOST_TEST((run.bits() == undisturbed.bits()));
}

BOOST_AUTO_TEST_CASE(objectives_see_their_sequences) {
  auto run = run_of<double>(some_trainer_options());
  const auto sequences = random_sequences(5, seq_len, 7);
  const LogProbabilities all = run.trainer.log_probabilities(Exec(), sequences);
  std::vector<std::size_t> firsts;
  LogProbabilities seen;
  const Objective watch = [&](std::size_t first, const LogProbabilities& logp) {
    firsts.push_back(first);
    BOOST_TEST(logp.sequences() == (first == 4 ? 1u : 2u));
    seen.values.insert(seen.values.end(), logp.values.begin(), logp.values.end());
    return mean_loss(24)(first, logp);
  };
  static_cast<void>(run.trainer.step(Exec(), sequences, watch));
  BOOST_TEST((firsts == std::vector<std::size_t>{0, 2, 4}));
  BOOST_TEST((seen.values == all.values));
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto ledger = Ledger::create();
  Trainer<Exec, float> raw(small_model(), some_trainer_options(), *ledger);
  const std::string unprepared =
      ": the states are undefined; call prepare(exec) once, after the weights were written";
  check_error<NotSupported>([&] { static_cast<void>(raw.step(Exec(), {}, mean_loss(1))); },
                            "kformer::Trainer::step" + unprepared);
  check_error<NotSupported>([&] { raw.log_probabilities(Exec(), {}); },
                            "kformer::Trainer::log_probabilities" + unprepared);
  const auto sequences = random_sequences(4, seq_len);
  for (const CrossEntropyOptions& loss :
       {CrossEntropyOptions{.label_smoothing = 0.1}, CrossEntropyOptions{.z_loss = 1e-4}}) {
    TrainerOptions options = some_trainer_options();
    options.loss = loss;
    auto run = run_of<float>(options);
    const std::string text =
        ": with label smoothing or z-loss a loss is no log-probability; set "
        "loss.label_smoothing and loss.z_loss to 0";
    check_error<NotSupported>([&] { static_cast<void>(run.trainer.step(Exec(), sequences, mean_loss(1))); },
                              "kformer::Trainer::step" + text);
    check_error<NotSupported>([&] { run.trainer.log_probabilities(Exec(), sequences); },
                              "kformer::Trainer::log_probabilities" + text);
  }
  auto run = run_of<float>(some_trainer_options(3));
  check_error<DimensionMismatch>(
      [&] {
        static_cast<void>(run.trainer.step(Exec(), sequences,
                                           [](auto...) { return ObjectiveShare{.loss = 0, .dlogp = {1}}; }));
      },
      "kformer::Trainer::step: the objective returned 1 derivatives; expected 15, one for each target of the "
      "micro-batch");
  PreferenceObjective objective({0, 0, 0, 0});
  check_error<DimensionMismatch>(
      [&] { static_cast<void>(run.trainer.step(Exec(), sequences, std::ref(objective))); },
      "kformer::PreferenceObjective: got a micro-batch of 3 sequences from number 0 on, of 4; expected whole "
      "pairs, so make the micro-batch even");
  check_error<DimensionMismatch>(
      [] { PreferenceObjective({0, 0, 0}); },
      "kformer::PreferenceObjective: got references of 3 sequences; expected an even "
      "number, a chosen and a rejected one of each pair");
}

BOOST_AUTO_TEST_CASE(adapters_that_are_off_have_no_backward) {
  auto run = run_of<double>(adapted_options());
  auto& model = run.trainer.model();
  const auto sequences = random_sequences(2, seq_len);
  const TestTensor<Exec, double> logits({1, small_model().vocab_size});
  model.use_adapters(AdapterUse::on);  // as before
  run.trainer.forward(Exec(), sequences);
  model.use_adapters(AdapterUse::on);
  model.logits(Exec(), 0, logits.template view<2>());
  model.use_adapters(AdapterUse::off);
  check_error<NotSupported>(
      [&] { model.logits(Exec(), 0, logits.template view<2>()); },
      "kformer::LlamaModel::logits: there are no hidden states; call forward(exec, ids) first");
  check_error<NotSupported>(
      [&] { static_cast<void>(run.step(sequences)); },
      "kformer::LlamaModel::backward: the adapters are switched off, and nothing else has a "
      "gradient; call use_adapters(AdapterUse::on) and forward first");
}

// What forward saved is of the other model.
BOOST_AUTO_TEST_CASE(a_switch_of_adapters_forgets_what_forward_saved) {
  auto run = run_of<double>(adapted_options());
  auto& model = run.trainer.model();
  using Model = LlamaModel<Exec, double>;
  run.trainer.forward(Exec(), random_sequences(2, seq_len));
  model.use_adapters(AdapterUse::off);
  model.use_adapters(AdapterUse::on);
  check_error<NotSupported>(
      [&] {
        model.backward(Exec(), Model::Tokens{}, Model::Tokens{}, Model::ConstTokenNumbers{},
                       Model::TokenNumbers{});
      },
      "kformer::LlamaModel::backward: each forward allows one backward; call forward first");

  LayerUnderTest<double> layer(LayerInputs::random(small_model(), {1, 5}, 3, LoraConfig::all(2, 4)),
                               AttentionAlgorithm::flash);
  layer.forward();
  layer.layer().use_adapters(AdapterUse::off);
  check_error<NotSupported>(
      [&] { layer.backward(); },
      "kformer::DecoderLayer::backward: the adapters are switched off, and nothing else has a gradient; call "
      "use_adapters(AdapterUse::on) and forward(exec, x, y) first");
  layer.layer().use_adapters(AdapterUse::on);
  check_error<NotSupported>(
      [&] { layer.backward(); },
      "kformer::DecoderLayer::backward: there was no forward; call forward(exec, x, y) first");
  layer.forward();
  layer.layer().use_adapters(AdapterUse::on);
  layer.backward();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
