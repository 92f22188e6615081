// SPDX-License-Identifier: MIT
#include "train/training_loop.hpp"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/hdf5_reader.hpp"
#include "io/scratch_directory.hpp"
#include "kformer/core/error.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;
using Testing::Hdf5Reader;
using Testing::ScratchDirectory;

constexpr std::int64_t seq_len = 4;
constexpr std::chrono::milliseconds time_to_save{5};

// Sequence i has i as its tokens, and i + 1 targets.
class Numbers final : public SequenceSource {
 public:
  explicit Numbers(std::int64_t size) : m_size(size) {}
  std::int64_t size() const override { return m_size; }
  void read(std::int64_t index, TokenSequence& sequence) const override {
    sequence.ids.assign(seq_len, static_cast<std::int32_t>(index));
    sequence.targets.assign(seq_len, -100);
    for (std::int64_t i = 0; i <= index && i < seq_len; ++i) sequence.targets[static_cast<std::size_t>(i)] = 0;
    sequence.starts = {0};
  }
  std::string fingerprint() const override { return "numbers"; }
  std::string description() const override { return "numbers"; }

 private:
  std::int64_t m_size;
};

// Learns nothing, and writes down what it is asked to do: a step by its number; e, t, c with the steps done before an
// evaluation, a token of a text, a checkpoint; f for the end of the last checkpoint.
class Diary final : public Learner {
 public:
  std::string log;
  std::vector<std::int32_t> read;                // first token of every sequence of a step
  std::vector<double> losses{9, 8, 7, 6, 5, 4};  // of the evaluations, in turn
  std::vector<std::pair<std::string, CheckpointColumns>> saved;
  std::int64_t steps = 0;
  std::int64_t skips = -1;  // this step
  bool disk_is_full = false;
  bool by_name = false;  // whether the loss of a sequence is its number

  StepReport step(std::span<const TokenSequence> sequences) override {
    note(std::to_string(steps));
    for (const TokenSequence& s : sequences) read.push_back(s.ids.front());
    StepReport report;
    report.step = steps++;
    report.loss = 1;
    report.tokens = 3;
    report.skipped = report.step == skips;
    return report;
  }
  double evaluate(std::span<const TokenSequence> sequences) override {
    note(fmt::format("e{}", steps));
    if (by_name) {
      double sum = 0, targets = 0;
      for (const TokenSequence& s : sequences) {
        const auto here = static_cast<double>(std::ranges::count(s.targets, 0));
        sum += here * s.ids.front();
        targets += here;
      }
      return sum / targets;
    }
    return losses.at(m_evaluations++);
  }
  std::vector<std::vector<double>> logits_after(std::span<const std::vector<std::int32_t>> texts) override {
    note(fmt::format("t{}", steps));
    std::vector<double> logits(258);
    logits['x'] = 1;
    return std::vector(texts.size(), logits);
  }
  void save_checkpoint(const std::string& text, CheckpointColumns columns) override {
    if (disk_is_full) throw FileError("no space");
    note(fmt::format("c{}", steps));
    saved.emplace_back(text, std::move(columns));
    std::this_thread::sleep_for(time_to_save);
  }
  void finish_checkpoints() override { note("f"); }
  std::int64_t steps_done() const override { return steps; }
  TrainerState state() const override { return {.steps = steps}; }
  void load(const Checkpoint&) override { throw std::logic_error("load"); }
  void load(const AdapterCheckpoint&) override { throw std::logic_error("load"); }
  void initialise_adapters(std::int64_t) override { throw std::logic_error("initialise_adapters"); }
  void save_adapter(const std::filesystem::path&, const AdapterDescription&) override {
    throw std::logic_error("save_adapter");
  }
  void initialise(const InitTable&) override { throw std::logic_error("initialise"); }
  void prepare() override { throw std::logic_error("prepare"); }
  void restore(const TrainingCheckpoint&, const TrainerState&) override { throw std::logic_error("restore"); }
  void save_weights(const std::filesystem::path&) override { throw std::logic_error("save_weights"); }

 private:
  void note(const std::string& what) { log += (log.empty() ? "" : " ") + what; }
  std::size_t m_evaluations = 0;
};

/// A training of six steps of two sequences.
struct LoopCase {
  LoopCase() {
    deck.batch = {.seq_len = seq_len, .micro_batch = 2, .sequences = 2};
    data.train = std::make_unique<Numbers>(20);
    data.validation = std::make_unique<Numbers>(2);
  }

  void evaluate_every(std::int64_t steps) { deck.evaluation = {.every_steps = steps}; }
  void save_every(std::int64_t steps) { deck.checkpoint = {.folder = "nowhere", .every_steps = steps}; }
  void write_every(std::int64_t steps) {
    deck.samples.emplace();
    deck.samples->every_steps = steps;
    deck.samples->prompts = {"a"};
    deck.samples->max_new_tokens = 1;
    LanguageModelTable model;
    model.vocab_size = 258;
    encoder =
        std::make_unique<PromptEncoder>(open_tokenizer(TokenizerFormat::byte, {}), TokenizerTable(), model);
    texts = std::make_unique<TextWriter>(deck, *encoder);
  }

  TrainingEnd run(TrainingHistory history = {}) {
    ResultFile file(directory / "run.h5", {.overwrite = true});
    TrainResults results(file, "serial");
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), &std::fclose);
    Progress progress({steps, 8, 1, 1, "0 B"}, out.get());
    TrainingLoop loop{.deck = &deck,
                      .data = &data,
                      .steps = steps,
                      .run = {},
                      .settings = {},
                      .learner = &learner,
                      .texts = texts.get(),
                      .ledger = ledger.get(),
                      .results = &results,
                      .progress = &progress,
                      .stop = [&] { return stops() ? std::optional<std::string>("time") : std::nullopt; },
                      .profile = {}};
    if (deck.profile.kernels)
      loop.profile = [&](const std::function<void()>& step) {
        profiled.push_back(learner.steps);
        step();
      };
    const TrainingEnd end = run_training(loop, std::move(history));
    file.finish();
    return end;
  }

  bool stops() const {
    return learner.steps == stop_after || (!stop_at.empty() && learner.log.ends_with(stop_at));
  }

  std::vector<double> numbers(const std::string& column) const {
    return Hdf5Reader(directory / "run.h5").numbers(column);
  }

  ScratchDirectory directory;
  TrainDeck deck;
  TrainingData data;
  Diary learner;
  std::unique_ptr<PromptEncoder> encoder;
  std::unique_ptr<TextWriter> texts;
  std::int64_t steps = 6, stop_after = -1;
  std::string stop_at;  // after this part of the diary
  std::vector<std::int64_t> profiled;
};

// What a run knows of `steps` steps before it.
TrainingHistory past(std::int64_t steps) {
  TrainingHistory history;
  for (std::int64_t i = 0; i < steps; ++i) {
    history.steps.emplace_back();
    history.steps.back().step = i;
  }
  return history;
}

using Doubles = std::vector<double>;

}  // namespace

BOOST_FIXTURE_TEST_SUITE(training_loop, LoopCase)

BOOST_AUTO_TEST_CASE(steps_alone) {
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 1 2 3 4 5");
  BOOST_TEST(end.tokens == 6 * 2 * seq_len);
  BOOST_TEST(!end.stopped);
  BOOST_TEST(end.checkpoints == 0);
  BOOST_TEST(numbers("steps/step") == (Doubles{0, 1, 2, 3, 4, 5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(evaluations_texts_and_checkpoints_come_in_this_order_and_at_the_end) {
  evaluate_every(2);
  write_every(3);
  save_every(4);
  run();
  BOOST_TEST(learner.log == "0 1 e2 2 t3 3 e4 c4 4 5 e6 t6 c6 f");
  BOOST_TEST(numbers("evaluations/step") == (Doubles{2, 4, 6}), boost::test_tools::per_element());
  BOOST_TEST(numbers("evaluations/loss") == (Doubles{9, 8, 7}), boost::test_tools::per_element());
  BOOST_TEST(numbers("samples/step") == (Doubles{3, 6}), boost::test_tools::per_element());
  BOOST_TEST(numbers("checkpoints/step") == (Doubles{4, 6}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(zero_steps_between_them_means_only_at_the_end) {
  evaluate_every(0);
  write_every(0);
  save_every(0);
  run();
  BOOST_TEST(learner.log == "0 1 2 3 4 5 e6 t6 c6 f");
}

BOOST_AUTO_TEST_CASE(a_checkpoint_knows_the_past) {
  evaluate_every(2);
  save_every(4);
  run();
  BOOST_TEST_REQUIRE(learner.saved.size() == 2u);
  const CheckpointRecord record = checkpoint_record(learner.saved[0].first, learner.saved[0].second, "record");
  BOOST_TEST(record.state.steps == 4);
  BOOST_TEST(record.history.steps.size() == 4u);
  BOOST_TEST(record.history.evaluations.size() == 2u);
}

BOOST_AUTO_TEST_CASE(the_time_that_checkpoints_take_is_counted) {
  save_every(4);
  const TrainingEnd end = run();
  const double least = std::chrono::duration<double>(time_to_save).count();
  BOOST_TEST(end.checkpoints == 2);
  BOOST_TEST(end.checkpoint_wait >= least);
  BOOST_TEST(end.last_checkpoint_wait >= least);
  const Doubles waited = numbers("checkpoints/waited");
  BOOST_TEST_REQUIRE(waited.size() == 2u);
  BOOST_TEST(waited[0] == end.checkpoint_wait);
  BOOST_TEST(waited[1] >= least);
  BOOST_TEST(waited[1] <= end.last_checkpoint_wait);
}

BOOST_AUTO_TEST_CASE(losses_of_parts_are_weighted_with_their_targets) {
  evaluate_every(0);
  data.validation = std::make_unique<Numbers>(3);
  learner.by_name = true;
  run();
  BOOST_TEST(learner.log == "0 1 2 3 4 5 e6 e6");
  // 1, 2 and 3 targets with the losses 0, 1 and 2.
  BOOST_TEST(numbers("evaluations/loss")[0] == 8.0 / 6);
}

BOOST_AUTO_TEST_CASE(an_evaluation_may_take_the_first_sequences_only) {
  evaluate_every(0);
  deck.evaluation->sequences = 2;
  data.validation = std::make_unique<Numbers>(3);
  learner.by_name = true;
  run();
  BOOST_TEST(numbers("evaluations/loss")[0] == 2.0 / 3);
}

BOOST_AUTO_TEST_CASE(an_early_stop_ends_the_training_as_its_last_step_would) {
  evaluate_every(1);
  write_every(0);
  save_every(3);
  deck.early_stop = {.patience = 2};
  learner.losses = {3, 2, 2.5, 2.4, 1, 1};
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 e1 1 e2 2 e3 c3 3 e4 t4 c4 f");
  BOOST_TEST(!end.stopped);
}

BOOST_AUTO_TEST_CASE(a_run_that_stopped_early_goes_on_no_further) {
  evaluate_every(1);
  save_every(3);
  deck.early_stop = {.patience = 2};
  learner.steps = 4;
  TrainingHistory history = past(4);
  for (const auto& [step, loss] : {std::pair{1, 3.0}, {2, 2.0}, {3, 2.5}, {4, 2.4}})
    history.evaluations.push_back({step, loss, 0});
  run(std::move(history));
  BOOST_TEST(learner.log == "f");
}

BOOST_AUTO_TEST_CASE(a_step_that_was_skipped_is_a_step) {
  evaluate_every(2);
  learner.skips = 1;
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 1 e2 2 3 e4 4 5 e6");
  BOOST_TEST(end.steps == 6);
  BOOST_TEST(end.skipped == 1);
  BOOST_TEST(numbers("steps/skipped") == (Doubles{0, 1, 0, 0, 0, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_saves_and_does_nothing_else) {
  evaluate_every(0);
  write_every(0);
  save_every(4);
  stop_after = 3;
  const TrainingEnd end = run();
  BOOST_TEST(learner.log == "0 1 2 c3 f");
  BOOST_TEST((end.stopped == std::optional<std::string>("time")));
  BOOST_TEST(end.tokens == 3 * 2 * seq_len);
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_before_the_first_step_saves) {
  save_every(4);
  stop_after = 0;
  BOOST_TEST((run().stopped == std::optional<std::string>("time")));
  BOOST_TEST(learner.log == "c0 f");
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_after_a_checkpoint_needs_no_other) {
  save_every(4);
  stop_after = 4;
  run();
  BOOST_TEST(learner.log == "0 1 2 3 c4 f");
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_after_the_last_step_comes_too_late) {
  save_every(4);
  stop_after = 6;
  BOOST_TEST(!run().stopped);
  BOOST_TEST(learner.log == "0 1 2 3 c4 4 5 c6 f");
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_cuts_an_evaluation_off_and_the_next_run_repeats_it) {
  evaluate_every(2);
  write_every(2);
  save_every(4);
  data.validation = std::make_unique<Numbers>(6);
  for (const auto& [end, before] : {std::pair{2, "0 1 "}, {6, "0 1 e2 e2 e2 t2 2 3 e4 e4 e4 t4 c4 4 5 "}}) {
    learner = {};
    learner.by_name = true;
    stop_at = fmt::format("e{} e{}", end, end);
    BOOST_TEST((run().stopped == std::optional<std::string>("time")));
    BOOST_TEST(learner.log == fmt::format("{}e{} e{} c{} f", before, end, end, end));
    const auto& [text, columns] = learner.saved.back();
    TrainingHistory history = checkpoint_record(text, columns, "record").history;
    BOOST_TEST(history.evaluations.size() == static_cast<std::size_t>(end / 2 - 1));
    learner.log.clear();
    stop_at.clear();
    const bool stopped = run(std::move(history)).stopped.has_value();
    BOOST_TEST(!stopped);
    BOOST_TEST(learner.log ==
               (end == 2 ? "e2 e2 e2 t2 2 3 e4 e4 e4 t4 c4 4 5 e6 e6 e6 t6 c6 f" : "e6 e6 e6 t6 c6 f"));
  }
}

BOOST_AUTO_TEST_CASE(a_request_to_stop_cuts_a_text_off_and_the_next_run_repeats_it) {
  evaluate_every(2);
  write_every(2);
  save_every(4);
  stop_at = "e2";
  run();
  BOOST_TEST(learner.log == "0 1 e2 c2 f");
  const auto& [text, columns] = learner.saved.back();
  learner.log.clear();
  stop_at.clear();
  run(checkpoint_record(text, columns, "record").history);
  BOOST_TEST(learner.log == "t2 2 3 e4 t4 c4 4 5 e6 t6 c6 f");
}

BOOST_AUTO_TEST_CASE(a_resumed_run_reads_what_comes_next) {
  evaluate_every(2);
  save_every(4);
  deck.data.shuffle = true;
  deck.run.seed = 7;
  deck.profile.kernels = true;
  learner.steps = 3;
  run(past(3));
  BOOST_TEST(learner.log == "3 e4 c4 4 5 e6 c6 f");
  const SequenceOrder order(20, true, 7);
  std::vector<std::int32_t> expected;
  for (std::int64_t i = 6; i < 12; ++i) expected.push_back(static_cast<std::int32_t>(order.at(i)));
  BOOST_TEST(learner.read == expected, boost::test_tools::per_element());
  BOOST_TEST(
      checkpoint_record(learner.saved[1].first, learner.saved[1].second, "record").history.steps.size() == 6u);
  // The second of this run.
  BOOST_TEST(profiled == std::vector<std::int64_t>{4}, boost::test_tools::per_element());
}

// The fences of a profile take time that no other step needs.
BOOST_AUTO_TEST_CASE(the_profiled_step_is_in_no_rate) {
  deck.profile.kernels = true;
  const TrainingEnd end = run();
  BOOST_TEST(end.steps == 6);
  BOOST_TEST(end.tokens == 5 * 2 * seq_len);
  const Doubles times = numbers("steps/time");
  double seconds = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    BOOST_TEST(std::isnan(times[i]) == (i == 1), "step " << i);
    if (i != 1) seconds += times[i];
  }
  BOOST_TEST(end.seconds == seconds);
}

BOOST_AUTO_TEST_CASE(a_single_step_is_profiled) {
  deck.profile.kernels = true;
  learner.steps = 5;
  const TrainingEnd end = run(past(5));
  BOOST_TEST(profiled == std::vector<std::int64_t>{5}, boost::test_tools::per_element());
  BOOST_TEST((end.tokens == 0 && end.seconds == 0));
}

BOOST_AUTO_TEST_CASE(a_run_that_is_resumed_at_its_end_repeats_nothing) {
  evaluate_every(2);
  write_every(3);
  save_every(4);
  learner.steps = 6;
  TrainingHistory history = past(6);
  history.evaluations.push_back({6, 1, 0});
  history.samples.push_back({6, "a", "x"});
  run(std::move(history));
  BOOST_TEST(learner.log == "f");
}

BOOST_AUTO_TEST_CASE(a_checkpoint_that_cannot_be_written_ends_the_run) {
  save_every(4);
  learner.disk_is_full = true;
  BOOST_CHECK_THROW(run(), FileError);
  BOOST_TEST(learner.log == "0 1 2 3");
}

BOOST_AUTO_TEST_SUITE_END()
