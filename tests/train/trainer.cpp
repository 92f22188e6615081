// SPDX-License-Identifier: MIT
#include "kformer/train/trainer.hpp"

#include <cmath>
#include <limits>
#include <set>

#include "support/distance.hpp"
#include "support/errors.hpp"
#include "train/training_run.hpp"

namespace kformer::Testing {
namespace {

constexpr std::int64_t seq_len = TrainingRun<float>::seq_len;

// Reports are equal in every bit; those of steps without a loss have a NaN.
bool same(const StepReport& a, const StepReport& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.step == b.step && equal(a.loss, b.loss) && a.learning_rate == b.learning_rate &&
         equal(a.gradient_norm, b.gradient_norm) && a.loss_scale == b.loss_scale && a.tokens == b.tokens &&
         a.skipped == b.skipped;
}

std::vector<double> gradient(TrainingRun<double>& run) {
  std::vector<double> all;
  for (const Parameter& p : run.trainer.model().parameters()) {
    const auto values = read_gradient<double, double>(p).values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trainer)

// Masks are uneven, so a mean of the means of micro-batches would be another gradient.
BOOST_AUTO_TEST_CASE(any_split_gives_the_gradient_of_the_mean_over_all_targets) {
  const auto sequences = random_sequences(7, seq_len);
  ModelInputs inputs = ModelInputs::random(small_model(), TrainingRun<double>::weights_shape);
  inputs.shape = {7, seq_len};
  inputs.ids.clear();
  inputs.targets.clear();
  for (const TokenSequence& s : sequences) {
    inputs.ids.insert(inputs.ids.end(), s.ids.begin(), s.ids.end());
    inputs.targets.insert(inputs.targets.end(), s.targets.begin(), s.targets.end());
  }
  const std::int64_t tokens = 7 * seq_len - (0 + 1 + 2 + 3 + 0 + 1 + 2);
  const auto expected = model_reference<double, double>(inputs);
  const double of_all = static_cast<double>(7 * seq_len) / static_cast<double>(tokens);
  double loss = 0;
  for (const double l : expected.loss.values()) loss += l / static_cast<double>(tokens);
  for (const std::int64_t batch : {1, 2, 3, 4, 7, 9}) {
    TrainingRun<double> run(some_trainer_options(batch));
    const StepReport report = run.step(sequences);
    BOOST_TEST(report.tokens == tokens);
    BOOST_TEST(std::abs(report.loss - loss) <= 1e-12 * loss, "micro-batches of " << batch);
    double squares = 0;
    for (const Parameter& p : run.trainer.model().parameters()) {
      std::vector<double> wanted = expected.gradients.at(p.name).values();
      for (double& v : wanted) v *= of_all;
      for (const double v : wanted) squares += v * v;
      const auto got = read_gradient<double, double>(p).values();
      BOOST_TEST(distance(got, wanted) <= 1e-12 * largest(wanted),
                 "micro-batches of " << batch << ", " << p.name);
    }
    BOOST_TEST(std::abs(report.gradient_norm - std::sqrt(squares)) <= 1e-12 * std::sqrt(squares));
  }
}

// Documents in one sequence, and the same documents one by one behind each other's padding.
BOOST_AUTO_TEST_CASE(packed_documents_train_as_if_each_were_alone) {
  constexpr std::int32_t ignored = CrossEntropyOptions().ignore_index;
  auto packed = random_sequences(3, seq_len);
  packed[0].starts = {0, 2, 3};
  packed[1].starts = {0, 5};
  std::vector<TokenSequence> alone;
  for (const TokenSequence& s : packed)
    for (std::size_t d = 0; d < s.starts.size(); ++d) {
      const std::int32_t begin = s.starts[d];
      const auto end = d + 1 < s.starts.size() ? s.starts[d + 1] : static_cast<std::int32_t>(seq_len);
      TokenSequence& one = alone.emplace_back(TokenSequence{.ids = {}, .targets = {}, .starts = {0}});
      one.ids.assign(s.ids.begin() + begin, s.ids.begin() + end);
      one.targets.assign(s.targets.begin() + begin, s.targets.begin() + end);
      one.ids.resize(static_cast<std::size_t>(seq_len), 0);
      one.targets.resize(static_cast<std::size_t>(seq_len), ignored);
    }
  TrainerOptions options = some_trainer_options();
  TrainingRun<double> separate(options);
  const StepReport expected = separate.step(alone);
  for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::nested}) {
    options.layer = {.recompute = kind, .packed = true};
    TrainingRun<double> run(options);
    const StepReport report = run.step(packed);
    BOOST_TEST(report.tokens == expected.tokens);
    BOOST_TEST(std::abs(report.loss - expected.loss) <= 1e-12 * expected.loss);
    BOOST_TEST(distance(gradient(run), gradient(separate)) <= 1e-12 * largest(gradient(separate)),
               name_of(kind));
  }
}

// Gradients lie over activations, where an evaluation between the steps leaves its own.
BOOST_AUTO_TEST_CASE_TEMPLATE(steps_of_one_micro_batch_need_less_memory_and_give_the_same_bits, T, Scalars) {
  TrainerOptions options = some_trainer_options(16);
  TrainingRun<T> expected(options);
  options.layer.accumulate = false;
  TrainingRun<T> run(options);
  BOOST_TEST(run.ledger->peak_total() < expected.ledger->peak_total());
  for (const unsigned seed : {1u, 2u, 3u}) {
    const auto sequences = random_sequences(seed == 2 ? 11 : 16, seq_len, seed);
    BOOST_TEST(same(run.step(sequences), expected.step(sequences)));
    run.trainer.evaluate(Exec(), random_sequences(20, seq_len, seed + 10));
  }
  BOOST_TEST((run.bits() == expected.bits()));
  check_error<NotSupported>(
      [&] { run.step(random_sequences(17, seq_len)); },
      "kformer::Trainer::step: got 17 sequences for a micro-batch of 16 (shape.batch), but "
      "backward overwrites the gradients; set layer.accumulate");
  BOOST_TEST(run.trainer.steps_done() == 3);
}

BOOST_AUTO_TEST_CASE(the_gradient_of_a_step_is_that_of_its_own_sequences) {
  const auto sequences = random_sequences(5, seq_len);
  TrainerOptions options = some_trainer_options();
  options.schedule = {.learning_rate = 0};
  TrainingRun<double> run(options);
  run.step(random_sequences(5, seq_len, 17));
  run.step(sequences);
  TrainingRun<double> fresh(options);
  fresh.step(sequences);
  BOOST_TEST((gradient(run) == gradient(fresh)));
}

// The loss scale is a power of two, so that it changes no bit of what is stored in float.
BOOST_AUTO_TEST_CASE(loss_and_norm_do_not_contain_the_loss_scale) {
  TrainerOptions options = some_trainer_options();
  TrainingRun<float> plain(options);
  options.optimizer.loss_scaling = LossScaling{.initial = 4096};
  TrainingRun<float> scaled(options);
  for (int t = 0; t < 3; ++t) {
    StepReport a = plain.random_step(t);
    const StepReport b = scaled.random_step(t);
    BOOST_TEST(a.loss_scale == 1);
    BOOST_TEST(b.loss_scale == 4096);
    a.loss_scale = b.loss_scale;
    BOOST_TEST(same(a, b), "step " << t);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_resumed_run_has_the_bits_of_one_that_never_stopped, T, Scalars) {
  for (const TrainerOptions& options : resumable_options<T>()) {
    TrainingRun<T> whole(options), begun(options);
    std::vector<StepReport> reports;
    for (int t = 0; t < 8; ++t) reports.push_back(whole.random_step(t));
    for (int t = 0; t < 3; ++t) begun.random_step(t);

    TrainingRun<T> resumed(options);
    resumed.random_step(77);  // what it was before does not count
    const auto from = begun.trainer.arrays(), to = resumed.trainer.arrays();
    BOOST_REQUIRE(from.size() == to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      using Bytes =
          Kokkos::View<std::byte*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
      const auto bytes = static_cast<std::size_t>(from[i].array.size()) * size_of(from[i].array.dtype);
      Kokkos::deep_copy(Bytes(static_cast<std::byte*>(to[i].array.data), bytes),
                        Bytes(static_cast<std::byte*>(from[i].array.data), bytes));
    }
    resumed.trainer.restore(begun.trainer.state());
    BOOST_TEST(resumed.trainer.steps_done() == 3);
    BOOST_TEST((resumed.trainer.state().spike_losses == begun.trainer.state().spike_losses));
    BOOST_TEST((resumed.trainer.state().spike_norms == begun.trainer.state().spike_norms));
    for (int t = 3; t < 8; ++t) {
      const auto report = resumed.random_step(t);
      BOOST_TEST(same(report, reports[static_cast<std::size_t>(t)]), "step " << t);
    }
    BOOST_TEST((resumed.bits() == whole.bits()));
    BOOST_TEST(resumed.trainer.state().optimizer.steps == whole.trainer.state().optimizer.steps);
    BOOST_TEST(resumed.trainer.state().optimizer.good_steps == whole.trainer.state().optimizer.good_steps);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_evaluation_leaves_no_trace, T, Scalars) {
  TrainingRun<T> plain(some_trainer_options()), watched(some_trainer_options());
  const auto held_out = random_sequences(5, seq_len, 9);
  for (int t = 0; t < 4; ++t) {
    const double before = watched.trainer.evaluate(Exec(), held_out);
    BOOST_TEST(watched.trainer.evaluate(Exec(), held_out) == before);
    BOOST_TEST(same(plain.random_step(t), watched.random_step(t)), "step " << t);
  }
  BOOST_TEST((plain.bits() == watched.bits()));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_evaluation_is_the_loss_of_a_step, T, Scalars) {
  TrainingRun<T> run(some_trainer_options());
  const auto sequences = random_sequences(5, seq_len, 9);
  const double evaluated = run.trainer.evaluate(Exec(), sequences);
  BOOST_TEST(run.step(sequences).loss == evaluated);
  BOOST_TEST(std::isnan(run.trainer.evaluate(Exec(), {})));
}

BOOST_AUTO_TEST_CASE(sequences_of_a_forward_do_not_see_each_other) {
  TrainingRun<double> run(some_trainer_options()), undisturbed(some_trainer_options());
  const auto sequences = random_sequences(2, seq_len, 9);
  const TestTensor<Exec, double> logits({1, small_model().vocab_size});
  const auto after = [&](std::span<const TokenSequence> some, std::int64_t token) {
    run.trainer.forward(Exec(), some);
    run.trainer.model().logits(Exec(), token, logits.template view<2>());
    Exec().fence("kformer::Testing::trainer");
    return logits.template read<double>().values();
  };
  const auto together = after(sequences, seq_len + 3);
  const auto alone = after(std::span(sequences).subspan(1), 3);
  BOOST_TEST(distance(together, alone) <= 1e-12 * largest(alone));
  BOOST_TEST(distance(together, after(sequences, 3)) > 1e-3 * largest(alone));
  run.step(sequences);
  undisturbed.step(sequences);
  BOOST_TEST((run.bits() == undisturbed.bits()));
  check_error<DimensionMismatch>(
      [&] { run.trainer.forward(Exec(), random_sequences(3, seq_len)); },
      "kformer::Trainer::forward: got 3 sequences; expected at most 2 (shape.batch)");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_loss_falls, T, Scalars) {
  TrainerOptions options = some_trainer_options();
  options.schedule = {.learning_rate = 1e-2};
  TrainingRun<T> run(options);
  const auto sequences = random_sequences(3, seq_len);
  const double first = run.step(sequences).loss;
  for (int t = 0; t < 40; ++t) BOOST_TEST(!run.step(sequences).skipped);
  BOOST_TEST(run.trainer.evaluate(Exec(), sequences) < 0.1 * first);
}

// The first running mean is (1 − β1) times the gradient as it was clipped.
BOOST_AUTO_TEST_CASE(gradients_are_clipped_after_their_norm_is_reported) {
  const auto means = [](TrainingRun<double>& run) {
    std::vector<double> all;
    for (const AdamWParameter& p : run.trainer.optimizer().parameters()) {
      const auto bits = bits_of(p.m);
      const std::size_t begin = all.size();
      all.resize(begin + bits.size() / sizeof(double));
      std::memcpy(all.data() + begin, bits.data(), bits.size());
    }
    return all;
  };
  TrainerOptions options = some_trainer_options();
  options.optimizer.max_norm = 0;
  TrainingRun<double> free(options);
  const double norm = free.random_step(0).gradient_norm;
  options.optimizer.max_norm = norm / 4;
  TrainingRun<double> clipped(options);
  BOOST_TEST(clipped.random_step(0).gradient_norm == norm);
  std::vector<double> expected = means(free);
  for (double& m : expected) m *= norm / 4 / (norm + 1e-6);
  BOOST_TEST(distance(means(clipped), expected) <=
             4 * std::numeric_limits<double>::epsilon() * largest(expected));
}

BOOST_AUTO_TEST_CASE(a_spike_changes_nothing_but_the_counts) {
  TrainerOptions options = some_trainer_options();
  options.schedule = {.learning_rate = 1e-2};
  options.spikes = {.loss_z = 4, .window = 10};
  TrainingRun<float> run(options), undisturbed(options);
  const auto usual = random_sequences(3, seq_len), other = random_sequences(3, seq_len, 5);
  for (int t = 0; t < 30; ++t) {
    BOOST_TEST(!run.step(usual).skipped);
    undisturbed.step(usual);
  }
  const auto before = run.bits();
  const TrainerState state = run.trainer.state();
  const StepReport spike = run.step(other);
  BOOST_TEST(spike.skipped);
  BOOST_TEST(spike.loss > 2 * undisturbed.trainer.evaluate(Exec(), usual));
  BOOST_TEST(std::isfinite(spike.gradient_norm));
  BOOST_TEST((run.bits() == before));
  BOOST_TEST(run.trainer.steps_done() == 31);
  BOOST_TEST(run.trainer.state().optimizer.steps == state.optimizer.steps);
  BOOST_TEST(run.trainer.state().optimizer.skipped == 1);
  BOOST_TEST(run.trainer.state().spike_losses.back() == spike.loss);
  BOOST_TEST(!run.step(usual).skipped);
  undisturbed.step(usual);
  BOOST_TEST((run.bits() == undisturbed.bits()));
}

BOOST_AUTO_TEST_CASE(gradients_that_are_not_finite_change_nothing_but_the_loss_scale) {
  TrainerOptions options = some_trainer_options();
  options.optimizer.loss_scaling = LossScaling{.initial = 0x1p24};  // too large for the activations' gradients
  options.spikes = {.loss_z = 4, .norm_z = 4, .window = 2};
  TrainingRun<f16> run(options);
  const auto before = run.bits();
  const StepReport report = run.random_step(0);
  BOOST_TEST(report.skipped);
  BOOST_TEST(!std::isfinite(report.gradient_norm));
  BOOST_TEST(std::isfinite(report.loss));
  BOOST_TEST((run.bits() == before));
  BOOST_TEST(run.trainer.state().optimizer.loss_scale == 0x1p23);
  BOOST_TEST(run.trainer.state().spike_losses.empty());
  BOOST_TEST(run.random_step(1).loss_scale == 0x1p23);
}

BOOST_AUTO_TEST_CASE(a_step_without_targets_is_skipped) {
  TrainingRun<float> run(some_trainer_options());
  auto sequences = random_sequences(2, seq_len);
  for (TokenSequence& s : sequences) s.targets.assign(s.targets.size(), -100);
  const auto before = run.bits();
  const StepReport report = run.step(sequences);
  BOOST_TEST(report.skipped);
  BOOST_TEST(report.tokens == 0);
  BOOST_TEST(std::isnan(report.loss));
  BOOST_TEST((run.bits() == before));
  BOOST_TEST(run.trainer.steps_done() == 1);
}

BOOST_AUTO_TEST_CASE(the_learning_rate_is_that_of_the_schedule) {
  const TrainerOptions options = some_trainer_options();
  TrainingRun<float> run(options);
  for (std::int64_t t = 0; t < 8; ++t) {
    const StepReport report = run.random_step(t);
    BOOST_TEST(report.step == t);
    BOOST_TEST(report.learning_rate == options.schedule.at(t));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(arrays_have_names_and_none_is_missing, T, Scalars) {
  for (const TrainerOptions& options : resumable_options<T>()) {
    const TrainingRun<T> run(options);
    const bool coded = options.optimizer.states == OptimizerStates::eight_bit;
    const bool master = sizeof(T) == 2 && options.optimizer.master;
    std::set<std::string> names;
    for (const NamedArray& a : run.trainer.arrays())
      BOOST_TEST(names.insert(a.name).second, a.name << " twice");
    const std::string weight = "model.layers.1.mlp.down_proj.weight";
    BOOST_TEST(names.contains(weight));
    BOOST_TEST(names.contains("optimizer.m." + weight));
    BOOST_TEST(names.contains("optimizer.v." + weight));
    BOOST_TEST(names.contains("optimizer.master." + weight) == master);
    BOOST_TEST(names.contains("optimizer.m_scale." + weight) == coded);
    BOOST_TEST(names.contains("optimizer.v_scale." + weight) == coded);
    const std::size_t parameters = run.trainer.optimizer().parameters().size();
    BOOST_TEST(names.size() == parameters * (3 + std::size_t{master} + (coded ? 2 : 0)));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_forecast_is_what_a_run_takes, T, Scalars) {
  for (const TrainerOptions& options : resumable_options<T>()) {
    const auto forecast = Ledger::create(Ledger::Mode::count);
    {
      const Trainer<Exec, T> trainer(small_model(), options, *forecast);
    }
    BOOST_TEST(forecast->current_total() == 0u);
    TrainingRun<T> run(options);
    run.random_step(0);
    run.trainer.evaluate(Exec(), random_sequences(3, seq_len));
    for (int c = 0; c < memory_classes; ++c)
      BOOST_TEST(run.ledger->peak(static_cast<MemoryClass>(c)) == forecast->peak(static_cast<MemoryClass>(c)));
    BOOST_TEST(run.ledger->peak_total() == forecast->peak_total());
  }
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto ledger = Ledger::create();
  Trainer<Exec, float> raw(small_model(), some_trainer_options(), *ledger);
  const auto unprepared = [](const std::string& name) {
    return "kformer::Trainer::" + name +
           ": the states are undefined; call prepare(exec) once, after the weights were written";
  };
  check_error<NotSupported>([&] { static_cast<void>(raw.step(Exec(), {})); }, unprepared("step"));
  check_error<NotSupported>([&] { raw.evaluate(Exec(), {}); }, unprepared("evaluate"));
  check_error<NotSupported>([&] { raw.forward(Exec(), {}); }, unprepared("forward"));
  check_error<NotSupported>(
      [&] { raw.restore({}); },
      "kformer::Optimizer::restore: the states are undefined; call prepare(exec) once, after "
      "the weights were written");
  check_error<NotSupported>(
      [&] {
        Trainer<Exec, float>(small_model(), {.shape = {1, 4}, .schedule = {.learning_rate = -1}}, *ledger);
      },
      "kformer::LearningRateSchedule: learning_rate must be between 0 and 3.4e38, the largest float, got -1");
  check_error<NotSupported>(
      [&] { Trainer<Exec, float>(small_model(), {.shape = {1, 4}, .loss = {.label_smoothing = 2}}, *ledger); },
      "kformer::Trainer: label_smoothing must be at least 0 and below 1, got 2.000000");
  check_error<NotSupported>(
      [&] { Trainer<Exec, float>(small_model(), {.shape = {1, 4}, .optimizer = {.beta2 = 1}}, *ledger); },
      "kformer::Optimizer: beta1 and beta2 must be at least 0 and less than 1, got 0.9 and 1");

  check_error<NotSupported>(
      [&] { Trainer<Exec, float>(small_model(), {}, *ledger); },
      "kformer::Trainer: `shape` must hold at least one token, got batch 0 and seq_len 0");

  TrainingRun<float> run(some_trainer_options());
  auto sequences = random_sequences(3, seq_len);
  sequences[1].targets.pop_back();
  check_error<DimensionMismatch>(
      [&] { run.step(sequences); },
      "kformer::Trainer::step: sequence 1 has 6 tokens and 5 targets; expected 6 of both "
      "(shape.seq_len)");
  sequences = random_sequences(3, seq_len);
  sequences[2].starts = {0, 4};
  check_error<NotSupported>([&] { run.step(sequences); },
                            "kformer::Trainer::step: sequence 2 has 2 documents, but attention would mix them; "
                            "set layer.packed");
  TrainerOptions documents = some_trainer_options();
  documents.layer.packed = true;
  TrainingRun<float> packed(documents);
  for (const std::vector<std::int32_t>& starts : {std::vector{1, 4}, std::vector{0, 4, 4}, std::vector{0, 6}}) {
    sequences[2].starts = starts;
    check_error<DimensionMismatch>(
        [&] { packed.step(sequences); },
        "kformer::Trainer::step: sequence 2 has documents whose starts do not ascend "
        "from 0 to less than 6 (shape.seq_len)");
  }
  BOOST_TEST(run.trainer.steps_done() == 0);
  check_error<NotSupported>([&] { run.trainer.restore({.steps = -1}); },
                            "kformer::Trainer::restore: expected no negative number of steps, got -1");
  check_error<NotSupported>(
      [&] { run.trainer.restore({.optimizer = {.skipped = -1}}); },
      "kformer::Optimizer::restore: expected no negative numbers, got 0 steps and -1 skipped");
  check_error<NotSupported>(
      [&] { run.trainer.restore({.optimizer = {.loss_scale = 0}}); },
      "kformer::DynamicLossScale: a scale of 0 cannot be restored: it must lie between least 1 "
      "and greatest 1.67772e+07");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
